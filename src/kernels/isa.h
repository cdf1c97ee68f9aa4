// Which instruction set the CPU kernels use. Results agree to rounding between them, and bit for
// bit within one.
#pragma once

#include <cstdint>

namespace aerie::kernels {

enum class Isa : uint8_t {
    kPlain,   // what every x86-64 has
    kAvx2,    // AVX2, FMA
    kAvx512,  // AVX512 F, BW, DQ, VL, BF16
    kAmx,     // the above with AMX-BF16 for bfloat16
};

const char* name_of(Isa isa);
bool isa_available(Isa isa);  // by this CPU and the kernel that runs on it
Isa best_isa();               // the last available one
Isa isa();                    // in use: best_isa(), unless set
// For tests and comparisons, while no kernel runs. CHECKs that it is available. Packed weights
// serve every instruction set.
void set_isa(Isa isa);

}  // namespace aerie::kernels
