// How the CPU kernels cut work over threads. Cuts never change a result.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tensor/stream.h"

namespace aerie::kernels {

// Below this many bytes moved (or as much time in arithmetic) a second thread costs more than it
// saves.
inline constexpr int64_t kGrainBytes = 32 << 10;

// Calls fn(begin, end) over parts of [0, rows), each worth at least a grain where there are
// several.
template <typename Fn>
void parallel_rows(Stream& stream, int64_t rows, int64_t bytes_per_row, Fn&& fn) {
    if (rows <= 0) return;
    const int64_t threads = stream.num_threads();
    const int64_t wanted = std::clamp<int64_t>(rows * bytes_per_row / kGrainBytes, 1, threads * 4);
    const int64_t step = (rows + wanted - 1) / wanted;
    const int64_t parts = (rows + step - 1) / step;
    stream.parallel_for(parts, [&](int64_t i) { fn(i * step, std::min(rows, (i + 1) * step)); });
}

}  // namespace aerie::kernels
