// The bytes of dispatch and combine, described once for both sides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exchange/phase.h"
#include "kernels/experts.h"

namespace aerie::exchange {

constexpr int kMaxSlots = 3;  // microbatches in flight

// Header of a dispatch. Its payload: rows [rows, hidden] in the compute type, then
// offsets int32 [rows + 1] into choices ExpertChoice [num_choices] (local expert, weight).
struct DispatchHeader {
    int32_t attention_rank;  // the sender, numbered over the cluster
    int32_t slot;
    uint64_t sequence;       // of the sender; grows with each dispatch
    int32_t layer;
    int32_t phase;
    int32_t rows;
    int32_t num_choices;
};

// Header of a combine. Its payload: one row for each row of the dispatch, [rows, hidden] in the
// compute type.
struct CombineHeader {
    int32_t ep_rank;
    int32_t slot;
    uint64_t sequence;  // of the dispatch that it answers
    int32_t rows;
    int32_t reserved = 0;
};

struct DispatchLayout {
    size_t row_bytes;  // hidden · size of the compute type
    int topk;

    size_t offsets_at(int rows) const { return static_cast<size_t>(rows) * row_bytes; }
    size_t choices_at(int rows) const { return offsets_at(rows) + (rows + 1) * sizeof(int32_t); }
    size_t bytes(int rows, int num_choices) const {
        return choices_at(rows) + num_choices * sizeof(kernels::ExpertChoice);
    }
    size_t max_bytes(int rows) const { return bytes(rows, rows * topk); }
};

}  // namespace aerie::exchange
