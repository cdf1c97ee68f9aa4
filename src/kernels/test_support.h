// Random tensors, and loops over instruction sets and pool sizes, for this folder's tests.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/isa.h"
#include "tensor/stream.h"
#include "tensor/tensor.h"

namespace aerie::kernels::testing {

inline std::vector<Isa> available_isas() {
    std::vector<Isa> isas;
    for (Isa i : {Isa::kPlain, Isa::kAvx2, Isa::kAvx512, Isa::kAmx})
        if (isa_available(i)) isas.push_back(i);
    return isas;
}

// Calls fn(isa, dtype) for each, and puts the best instruction set back.
template <typename Fn>
void for_each_isa_and_type(Fn fn) {
    for (Isa isa : available_isas())
        for (DType type : {DType::kF32, DType::kBF16}) {
            set_isa(isa);
            SCOPED_TRACE(std::string(name_of(isa)) + " " + name_of(type));
            fn(type);
        }
    set_isa(best_isa());
}

inline float get(ConstView x, int64_t i, int64_t j) {
    return x.dtype == DType::kBF16 ? f32_from_bf16(x.row_as<BF16>(i)[j]) : x.row_as<float>(i)[j];
}
inline void put(View x, int64_t i, int64_t j, float value) {
    if (x.dtype == DType::kBF16)
        x.row_as<BF16>(i)[j] = bf16_from_f32(value);
    else
        x.row_as<float>(i)[j] = value;
}

inline void fill_random(View x, uint32_t seed, float scale = 1.0f) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> values(-scale, scale);
    for (int64_t i = 0; i < x.rows; ++i)
        for (int64_t j = 0; j < x.cols; ++j) put(x, i, j, values(random));
}
inline void fill(View x, float value) {
    for (int64_t i = 0; i < x.rows; ++i)
        for (int64_t j = 0; j < x.cols; ++j) put(x, i, j, value);
}
inline Tensor random_tensor(DType type, int64_t rows, int64_t cols, uint32_t seed,
                            float scale = 1.0f) {
    Tensor t(type, rows, cols);
    fill_random(t.view(), seed, scale);
    return t;
}

inline bool same_bits(ConstView a, ConstView b) {
    if (a.rows != b.rows || a.cols != b.cols || a.dtype != b.dtype) return false;
    for (int64_t i = 0; i < a.rows; ++i)
        if (std::memcmp(a.row(i), b.row(i), static_cast<size_t>(a.cols) * size_of(a.dtype)) != 0)
            return false;
    return true;
}

// Largest |a − b| over the largest |b|.
inline double relative_error(ConstView a, ConstView b) {
    double worst = 0, largest = 1e-30;
    for (int64_t i = 0; i < a.rows; ++i)
        for (int64_t j = 0; j < a.cols; ++j) {
            const double difference = std::abs(double{get(a, i, j)} - get(b, i, j));
            if (std::isnan(difference)) return 1e30;
            worst = std::max(worst, difference);
            largest = std::max(largest, std::abs(double{get(b, i, j)}));
        }
    return worst / largest;
}

// Errors that the output's own rounding explains.
inline double tolerance(DType type) { return type == DType::kBF16 ? 8e-3 : 2e-6; }

}  // namespace aerie::kernels::testing
