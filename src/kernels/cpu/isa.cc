#include "kernels/isa.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "base/check.h"
#include "kernels/cpu/ops.h"

namespace aerie::kernels {
namespace {

// Linux hands out the 8 KiB of tile registers on request, once for the whole process.
bool request_amx() {
    constexpr int kArchReqXcompPerm = 0x1023;
    constexpr int kXfeatureTileData = 18;
    return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureTileData) == 0;
}

bool has_amx_bf16() {
    unsigned a, b, c, d;
    __asm__("cpuid" : "=a"(a), "=b"(b), "=c"(c), "=d"(d) : "a"(7), "c"(0));
    constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;
    return (d & kAmxBf16) != 0 && (d & kAmxTile) != 0;
}

bool detect(Isa isa) {
    switch (isa) {
        case Isa::kPlain:
            return true;
        case Isa::kAvx2:
            return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
        case Isa::kAvx512:
            return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512bf16");
        case Isa::kAmx:
            return detect(Isa::kAvx512) && has_amx_bf16() && request_amx();
    }
    return false;
}

const CpuOps* ops_of(Isa isa) {
    switch (isa) {
        case Isa::kPlain:
            return &plain_ops();
        case Isa::kAvx2:
            return &avx2_ops();
        case Isa::kAvx512:
            return &avx512_ops();
        case Isa::kAmx:
            return &amx_ops();
    }
    return nullptr;
}

std::atomic<Isa> current{best_isa()};
std::atomic<const CpuOps*> current_ops{nullptr};

}  // namespace

const char* name_of(Isa isa) {
    switch (isa) {
        case Isa::kPlain:
            return "plain";
        case Isa::kAvx2:
            return "avx2";
        case Isa::kAvx512:
            return "avx512";
        case Isa::kAmx:
            return "amx";
    }
    return "?";
}

bool isa_available(Isa isa) {
    static const bool available[] = {detect(Isa::kPlain), detect(Isa::kAvx2), detect(Isa::kAvx512),
                                     detect(Isa::kAmx)};
    return available[static_cast<int>(isa)];
}

Isa best_isa() {
    for (Isa isa : {Isa::kAmx, Isa::kAvx512, Isa::kAvx2})
        if (isa_available(isa)) return isa;
    return Isa::kPlain;
}

Isa isa() { return current.load(std::memory_order_relaxed); }

void set_isa(Isa isa) {
    CHECK(isa_available(isa), "this machine has no {}", name_of(isa));
    current.store(isa, std::memory_order_relaxed);
    current_ops.store(ops_of(isa), std::memory_order_release);
}

const CpuOps& ops() {
    const CpuOps* table = current_ops.load(std::memory_order_acquire);
    if (table == nullptr) [[unlikely]] {
        table = ops_of(isa());
        current_ops.store(table, std::memory_order_release);
    }
    return *table;
}

}  // namespace aerie::kernels
