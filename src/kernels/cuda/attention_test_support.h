// Sequences of a step and their KV in pages, for the tests of both forms of attention.
#pragma once

#include <numeric>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cuda/test_support.h"

namespace aerie::kernels::testing {

using Lengths = std::vector<std::pair<int, int>>;  // of each sequence: rows, first position

struct PagedKv {
    Tensor memory;  // [blocks · page, 576], NaN where nobody wrote
    std::vector<std::vector<int32_t>> blocks;
};

// KV of sequence i depends on i and the position alone.
inline PagedKv make_paged_kv(const Lengths& sequences, int page) {
    constexpr int kWidth = 576;
    PagedKv r;
    int num_blocks = 1;
    for (const auto& [rows, position] : sequences) {
        r.blocks.emplace_back((position + rows + page - 1) / page);
        std::iota(r.blocks.back().begin(), r.blocks.back().end(), num_blocks);
        std::shuffle(r.blocks.back().begin(), r.blocks.back().end(), std::mt19937(5));
        num_blocks += static_cast<int>(r.blocks.back().size());
    }
    r.memory = Tensor(DType::kBF16, int64_t{num_blocks} * page, kWidth);
    fill(r.memory.view(), std::nanf(""));
    for (size_t i = 0; i < sequences.size(); ++i) {
        const int length = sequences[i].first + sequences[i].second;
        const Tensor kv = random_tensor(DType::kBF16, length, kWidth, 100 + static_cast<int>(i));
        for (int t = 0; t < length; ++t)
            std::memcpy(r.memory.view().row(int64_t{r.blocks[i][t / page]} * page + t % page),
                        kv.view().row(t), kWidth * sizeof(BF16));
    }
    return r;
}

inline std::vector<MlaSequence> sequences_of(const Lengths& lengths, const PagedKv& kv) {
    std::vector<MlaSequence> r;
    int row = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
        r.push_back({row, lengths[i].first, lengths[i].second, kv.blocks[i].data()});
        row += lengths[i].first;
    }
    return r;
}
inline int rows_of(const Lengths& lengths) {
    int rows = 0;
    for (const auto& [num_rows, position] : lengths) rows += num_rows;
    return rows;
}

}  // namespace aerie::kernels::testing
