#include "expert/card_experts.h"

#include <cstring>

#include "expert/dropped.h"

namespace aerie::expert {

CardExperts::CardExperts(const CardExpertsOptions& options) : options_(options) {
    const int64_t rows = options.max_rows, hidden = options.hidden, topk = options.topk;
    rows_on_card_ = Tensor(DType::kBF16, rows, hidden, Device::kCuda);
    results_on_card_ = Tensor(DType::kBF16, rows, hidden, Device::kCuda);
    ids_on_card_ = Tensor(DType::kI32, rows, topk, Device::kCuda);
    weights_on_card_ = Tensor(DType::kF32, rows, topk, Device::kCuda);
    rows_ = PinnedBuffer(rows_on_card_.num_bytes());
    results_ = PinnedBuffer(results_on_card_.num_bytes());
    ids_ = PinnedBuffer(ids_on_card_.num_bytes());
    weights_ = PinnedBuffer(weights_on_card_.num_bytes());
    stream_.set_quantises_rows(options.quantises_rows);
    std::memset(rows_.as<void>(), 0, rows_.size());
    for (int64_t i = 0; i < rows * topk; ++i) {  // each expert once a row
        const auto expert = static_cast<int32_t>(i % topk);
        ids_.as<int32_t>()[i] = expert < options.num_experts ? expert : -1;
    }
    std::memset(weights_.as<void>(), 0, weights_.size());
    run(rows, *options.largest);
    stream_.freeze_card_scratch();
}

void CardExperts::compute(std::span<const exchange::Waiting> group,
                          const kernels::ExpertWeights& experts, exchange::ExpertSide& side) {
    int64_t num_rows = 0;
    for (const exchange::Waiting& waiting : group) {
        CHECK(num_rows + waiting.hidden.rows <= options_.max_rows, "{} rows after {} of at most {}",
              waiting.hidden.rows, num_rows, options_.max_rows);
        stage(waiting, num_rows);
        num_rows += waiting.hidden.rows;
    }
    run(num_rows, experts);
    const auto* from = results_.as<std::byte>();
    for (const exchange::Waiting& waiting : group) {
        const View out = side.output(waiting);
        const size_t bytes = static_cast<size_t>(out.rows * out.cols) * size_of(out.dtype);
        std::memcpy(out.data, from, bytes);
        from += bytes;
    }
}

// Lists of choices become [rows, topk] as a card's gate makes them, filled up with experts that are not
// here.
void CardExperts::stage(const exchange::Waiting& waiting, int64_t first_row) {
    const ConstView hidden = waiting.hidden;
    CHECK(hidden.dtype == DType::kBF16 && hidden.cols == options_.hidden, "rows of {} {}",
          hidden.cols, name_of(hidden.dtype));
    const size_t row_bytes = static_cast<size_t>(hidden.cols) * size_of(DType::kBF16);
    std::memcpy(rows_.as<std::byte>() + static_cast<size_t>(first_row) * row_bytes, hidden.data,
                static_cast<size_t>(hidden.rows) * row_bytes);
    for (int64_t row = 0; row < hidden.rows; ++row) {
        int32_t* ids = ids_.as<int32_t>() + (first_row + row) * options_.topk;
        float* weights = weights_.as<float>() + (first_row + row) * options_.topk;
        const int32_t begin = waiting.offsets[row], count = waiting.offsets[row + 1] - begin;
        CHECK(count <= options_.topk, "{} experts of a row, at most {}", count, options_.topk);
        for (int32_t i = 0; i < options_.topk; ++i) {
            const bool is_one = i < count;
            ids[i] = is_one ? waiting.choices[begin + i].expert : -1;
            weights[i] = is_one ? waiting.choices[begin + i].weight : 0;
            if (is_one && is_dropped(waiting.layer, options_.first_expert + ids[i])) weights[i] = 0;
        }
    }
}

void CardExperts::run(int64_t num_rows, const kernels::ExpertWeights& experts) {
    const card::Queue queue = stream_.queue();
    const auto values = static_cast<size_t>(num_rows * options_.hidden) * size_of(DType::kBF16);
    const auto choices = static_cast<size_t>(num_rows * options_.topk) * sizeof(int32_t);
    card::copy(queue, rows_on_card_.data<void>(), rows_.as<void>(), values);
    card::copy(queue, ids_on_card_.data<void>(), ids_.as<void>(), choices);
    card::copy(queue, weights_on_card_.data<void>(), weights_.as<void>(), choices);
    kernels::routed_ffn(stream_, {.x = rows_on_card_.first_rows(num_rows),
                                  .ids = ids_on_card_.data<int32_t>(),
                                  .weights = weights_on_card_.data<float>(),
                                  .top_k = options_.topk,
                                  .first_expert = 0,
                                  .num_experts = options_.num_experts,
                                  .experts = &experts,
                                  .out = results_on_card_.first_rows(num_rows)});
    card::copy(queue, results_.as<void>(), results_on_card_.data<void>(), values);
    card::synchronize(queue);
}

}  // namespace aerie::expert
