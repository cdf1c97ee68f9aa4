// Steps of the card as CUDA graphs: what a step's kernels are told by the host, pointers and
// numbers of rows, is the same for all decode steps of a number of rows; what differs they read on
// the card (StepNumbers, kernels::MlaStep).
#include <algorithm>

#include "base/clock.h"
#include "base/log.h"
#include "kernels/time_stamp.h"
#include "model/attention_rank_impl.h"

namespace aerie::model {
namespace {

// A step of rows that ask for nothing real: token 0, from position 0 on, all in the pool's first
// block, which no request has yet.
struct EmptyStep {
    EmptyStep(int64_t num_rows, int64_t rows_each, int64_t num_logits, int page_size,
              Phase step_phase)
        : tokens(static_cast<size_t>(num_rows), 0),
          table(static_cast<size_t>((rows_each + page_size - 1) / page_size), 0),
          tables{table},
          phase(step_phase) {
        for (int64_t row = 0; row < num_rows; row += rows_each)
            sequences.push_back({row, std::min(rows_each, num_rows - row), 0, tables});
        for (int64_t row = 0; row < num_logits; ++row)
            logits_rows.push_back(static_cast<int32_t>(row));
        draws.resize(logits_rows.size());
    }
    EmptyStep(const EmptyStep&) = delete;
    StepInput input() const { return {tokens, sequences, begin, phase, logits_rows, draws}; }

    std::vector<int32_t> tokens, table, logits_rows;
    std::vector<std::span<const int32_t>> tables;
    std::vector<SequenceSlice> sequences;
    std::vector<kernels::DrawParams> draws;
    std::vector<int64_t> begin = {0};
    Phase phase;
};

// In place of experts that are on other hosts, which nobody has met yet.
class NoExperts final : public exchange::AttentionSide {
    Status dispatch(const exchange::Dispatch&) override { return {}; }
    Status combine(int, View) override { return {}; }
    void reset() override {}
};

}  // namespace

// A decode step that a graph was made for: one row of each sequence, and the logits of each.
const AttentionRank::Impl::StepGraph* AttentionRank::Impl::graph_for(const StepInput& input) const {
    if (input.phase != Phase::kDecode || input.logits_rows.size() != input.tokens.size())
        return nullptr;
    const auto at = std::lower_bound(
        graphs.begin(), graphs.end(), std::ssize(input.tokens),
        [](const StepGraph& graph, int64_t num_rows) { return graph.rows < num_rows; });
    return at == graphs.end() ? nullptr : &*at;
}

void AttentionRank::Impl::stamp(int64_t at) {
    if (stream.on_card()) kernels::time_stamp(stream, ws.told.data<int64_t>() + at);
}

void AttentionRank::Impl::report_times(LayerObserver& observer) {
    const int64_t* stamps = ws.told_to_host.as<int64_t>();
    const auto seconds = [&](int from) {
        return static_cast<double>(stamps[from + 1] - stamps[from]) * 1e-9;
    };
    for (int layer = 0; layer < config.num_hidden_layers; ++layer) {
        observer.attention_time(layer, 0, seconds(2 * layer));
        if (weights.layers[layer].is_moe) observer.experts_time(layer, seconds(2 * layer + 1));
    }
}

// The largest step, after which no kernel's own memory grows or moves any more.
Status AttentionRank::Impl::warm_up() {
    NoExperts none;
    exchange::AttentionSide* const experts = options.experts;
    if (experts != nullptr && !experts->stays_in_stream()) options.experts = &none;
    const EmptyStep largest(options.max_rows, std::min(longest_sequence(), options.max_rows),
                            std::min(options.max_logits_rows, options.max_rows),
                            options.pool->page_size(), Phase::kPrefill);
    RETURN_IF_ERROR(layout.build(largest.input()));
    const Status status = forward(largest.input(), nullptr);
    options.experts = experts;
    return status;
}

Status AttentionRank::Impl::make_graphs() {
    const TimePoint begin = Clock::now();
    RETURN_IF_ERROR(warm_up());
    CHECK(options.graph_rows.empty() || ((options.experts == nullptr ||
                                          options.experts->stays_in_stream()) && !options.kv_leaves),
          "a graph cannot wait, for experts elsewhere or before KV leaves");
    CHECK(options.graph_rows.empty() || options.graph_rows.back() <= StepNumbers::kFewRows,
          "a graph of {} rows", options.graph_rows.back());
    const auto decode_step = [this](int64_t num_rows) {
        return EmptyStep(num_rows, 1, num_rows, options.pool->page_size(), Phase::kDecode);
    };
    // Each once as kernels, so that what they load at their first call is there, and their memory
    // settled.
    for (const int64_t num_rows : options.graph_rows) {
        const EmptyStep step = decode_step(num_rows);
        RETURN_IF_ERROR(layout.build(step.input()));
        prepare(step.input(), num_rows);
        RETURN_IF_ERROR(compute(step.input(), nullptr));
        card::synchronize(stream.queue());
    }
    stream.freeze_card_scratch();
    for (const int64_t num_rows : options.graph_rows) {
        const EmptyStep step = decode_step(num_rows);
        RETURN_IF_ERROR(layout.build(step.input()));
        prepare(step.input(), num_rows);
        card::synchronize(stream.queue());
        card::Graph::begin(stream.queue());
        const Status status = compute(step.input(), nullptr);
        card::Graph graph = card::Graph::end(stream.queue());
        RETURN_IF_ERROR(status);
        graphs.push_back({num_rows, std::move(graph)});
    }
    if (!graphs.empty())
        log_info("{} decode graphs of 1 to {} rows made in {:.1f} s", graphs.size(),
                 graphs.back().rows, seconds_since(begin));
    return {};
}

}  // namespace aerie::model
