#include "model/testing/replica.h"

#include <algorithm>
#include <thread>

#include "config/placement.h"
#include "exchange/card_side.h"
#include "model/model_support.h"

namespace aerie::model {
namespace {

constexpr double kWaitSeconds = 120;

std::unique_ptr<kernels::RopeTable> make_rope(const ModelConfig& config, Device device) {
    return std::make_unique<kernels::RopeTable>(
        rope_params(config),
        std::min(config.max_position_embeddings, device == Device::kCpu ? 16384 : 65536), device);
}

}  // namespace

Result<std::unique_ptr<TestModel>> TestModel::load(const std::string& folder,
                                                   const WeightOptions& options) {
    auto model = std::make_unique<TestModel>();
    std::vector<std::string> errors;
    model->config = read_model_config(folder, errors);
    if (!errors.empty()) return Error{errors[0]};
    auto source = open_checkpoint(folder, ReadMode::kAuto);
    if (!source) return source.error();
    model->store = std::make_unique<WeightStore>(*std::move(source), options);
    model->rope = make_rope(model->config, options.device);
    return model;
}

std::unique_ptr<TestModel> TestModel::dummy(const ModelConfig& config, const WeightOptions& options,
                                            uint64_t seed) {
    auto model = std::make_unique<TestModel>();
    model->config = config;
    model->store = std::make_unique<WeightStore>(
        make_dummy_source(seed, config.quantization_config.has_value()), options);
    model->rope = make_rope(config, options.device);
    return model;
}

Result<std::unique_ptr<TestReplica>> TestReplica::create(TestModel& model,
                                                         const ReplicaOptions& options) {
    std::unique_ptr<TestReplica> replica(new TestReplica(model, options));
    if (options.num_threads > 1)
        replica->threads_ =
            std::make_unique<ThreadPool>(ThreadPoolOptions{options.num_threads - 1});
    Stream stream(replica->threads_.get());
    RETURN_IF_ERROR(replica->load_weights(stream));
    RETURN_IF_ERROR(replica->make_ranks());
    return replica;
}

Status TestReplica::load_weights(Stream& stream) {
    for (int tp = 0; tp < options_.tp_size; ++tp) {
        auto weights = load_attention_weights(model_.config,
                                              {.tp = tp,
                                               .tp_size = options_.tp_size,
                                               .with_mtp = options_.mtp,
                                               .can_expand = options_.expand},
                                              *model_.store, stream);
        if (!weights) return weights.error();
        weights_.push_back(std::make_unique<AttentionWeights>(*std::move(weights)));
    }
    for (int ep = 0; ep < options_.ep_size; ++ep) {
        const auto [begin, end] = experts_of(ep, options_.ep_size, model_.config.n_routed_experts);
        auto experts = load_routed_experts(
            model_.config, {.expert_begin = begin, .expert_end = end, .with_mtp = options_.mtp},
            *model_.store, stream);
        if (!experts) return experts.error();
        expert_ranks_.push_back(std::make_unique<RoutedExperts>(*std::move(experts)));
    }
    return {};
}

Status TestReplica::make_ranks() {
    const int size = options_.tp_size * options_.cp_size;
    const ModelConfig& config = model_.config;
    const int64_t blocks = options_.max_positions / options_.page_size / options_.cp_size + 64;
    for (int cp = 0; cp < options_.cp_size; ++cp) {
        pools_.push_back(std::make_unique<KvPool>(
            KvPoolShape{.num_layers = config.num_hidden_layers + (options_.mtp ? 1 : 0),
                        .num_blocks = blocks,
                        .page_size = options_.page_size,
                        .width = config.latent_dim(),
                        .dtype = model_.store->options().compute},
            options_.device));
        next_block_.push_back(0);
    }
    if (size > 1) group_ = comm::make_local_group(size, kWaitSeconds);
    std::vector<const RoutedExperts*> expert_ranks;
    for (const auto& rank : expert_ranks_) expert_ranks.push_back(rank.get());
    observers_.resize(static_cast<size_t>(size));
    for (int index = 0; index < size; ++index) {
        const int tp = index % options_.tp_size, cp = index / options_.tp_size;
        streams_.push_back(std::make_unique<Stream>(threads_.get(), options_.device));
        streams_.back()->set_quantises_rows(!options_.deterministic);
        experts_.push_back(std::make_unique<DirectExperts>(expert_ranks, streams_.back().get()));
        auto rank = AttentionRank::create({.config = &config,
                                           .weights = weights_[tp].get(),
                                           .rope = model_.rope.get(),
                                           .pool = pools_[cp].get(),
                                           .group = group_.get(),
                                           .experts = experts_of_rank(),
                                           .stream = streams_.back().get(),
                                           .place = {tp, options_.tp_size, cp, options_.cp_size},
                                           .max_rows = options_.max_rows,
                                           .max_logits_rows = options_.max_logits_rows,
                                           .tile_rows = options_.tile_rows,
                                           .deterministic = options_.deterministic,
                                           .graph_rows = options_.graph_rows,
                                           .profile = index == 0 ? options_.profile : nullptr});
        if (!rank) return rank.error();
        ranks_.push_back(*std::move(rank));
    }
    return {};
}

exchange::AttentionSide* TestReplica::experts_of_rank() {
    if (options_.device == Device::kCpu) return experts_.back().get();
    exchange::CardSideOptions options;
    options.stream = streams_.back().get();
    for (const auto* layer : expert_ranks_.front()->layers)
        options.layers.push_back(layer == nullptr ? nullptr : &layer->front());
    options.num_experts = model_.config.n_routed_experts;
    options.hidden = model_.config.hidden_size;
    options.max_rows = static_cast<int>(options_.max_rows);
    card_side_ = exchange::make_card_side(options);
    return card_side_.get();
}

int TestReplica::add_sequence(std::vector<int32_t> tokens) {
    Sequence sequence;
    sequence.tokens = std::move(tokens);
    sequence.blocks.resize(static_cast<size_t>(options_.cp_size));
    sequences_.push_back(std::move(sequence));
    return static_cast<int>(sequences_.size()) - 1;
}

void TestReplica::reserve_blocks(Sequence& sequence, int64_t positions) {
    const int64_t needed = (positions + options_.page_size - 1) / options_.page_size;
    for (int64_t block = 0; block < needed; ++block) {
        const auto cp = static_cast<size_t>(block % options_.cp_size);
        if (static_cast<int64_t>(sequence.blocks[cp].size()) > block / options_.cp_size) continue;
        const int32_t next = next_block_[cp]++;
        // Scattered: neighbours in the table are not neighbours in the pool.
        const auto half = static_cast<int32_t>(pools_[cp]->num_blocks() / 2);
        const int32_t id = !options_.scatter_blocks ? next
                           : next % 2 == 0          ? next / 2
                                                    : half + next / 2;
        sequence.blocks[cp].push_back(id);
    }
    sequence.block_tables.assign(sequence.blocks.begin(), sequence.blocks.end());
}

void TestReplica::add_rows(Rows& rows, const Part& part, std::span<const int32_t> tokens) {
    Sequence& sequence = sequences_[part.sequence];
    reserve_blocks(sequence, part.first_position + part.num_rows);
    rows.slices.push_back(
        {part.first_row, part.num_rows, part.first_position, sequence.block_tables});
    rows.tokens.insert(rows.tokens.end(), tokens.begin(), tokens.end());
    for (int64_t i = part.all_logits ? 0 : part.num_rows - 1; i < part.num_rows; ++i)
        rows.logits_rows.push_back(static_cast<int32_t>(part.first_row + i));
}

void TestReplica::cut(Rows& rows, const std::vector<int64_t>& cuts) const {
    for (int64_t row : cuts) {
        if (row > rows.microbatch_begin.back() && row < static_cast<int64_t>(rows.tokens.size()))
            rows.microbatch_begin.push_back(row);
    }
}

StepInput TestReplica::input_of(const Rows& rows) {
    return {.tokens = rows.tokens,
            .sequences = rows.slices,
            .microbatch_begin = rows.microbatch_begin,
            .phase = rows.tokens.size() == rows.slices.size() ? Phase::kDecode : Phase::kPrefill,
            .logits_rows = rows.logits_rows};
}

Status TestReplica::step(const std::vector<StepPart>& parts, const std::vector<int64_t>& cuts,
                         std::span<const kernels::DrawParams> draws) {
    Rows rows;
    last_parts_.clear();
    for (const StepPart& part : parts) {
        const Sequence& sequence = sequences_[part.sequence];
        CHECK(sequence.num_computed + part.num_tokens <= std::ssize(sequence.tokens));
        last_parts_.push_back({part.sequence, std::ssize(rows.tokens), part.num_tokens,
                               sequence.num_computed, part.all_logits});
        add_rows(rows, last_parts_.back(),
                 std::span(sequence.tokens).subspan(sequence.num_computed, part.num_tokens));
    }
    cut(rows, cuts);
    StepInput input = input_of(rows);
    input.draws = draws;
    RETURN_IF_ERROR(run_ranks([&input](AttentionRank& rank, LayerObserver* observer) {
        return rank.forward(input, observer);
    }));
    for (const StepPart& part : parts) sequences_[part.sequence].num_computed += part.num_tokens;
    return {};
}

Status TestReplica::draft(const std::vector<int64_t>& cuts) {
    Rows rows;
    std::vector<int32_t> hidden_of;
    const ConstView hidden = ranks_[0]->hidden_rows();
    Tensor kept(hidden.dtype, std::ssize(last_parts_), hidden.cols);
    for (size_t i = 0; i < last_parts_.size(); ++i) {
        const Part& part = last_parts_[i];
        Sequence& sequence = sequences_[part.sequence];
        add_rows(rows, part,
                 std::span(sequence.tokens).subspan(part.first_position, part.num_rows));
        const auto index = static_cast<int32_t>(i);
        hidden_of.push_back(sequence.last_hidden.empty() ? kNoHidden : given_hidden_row(index));
        std::copy(sequence.last_hidden.begin(), sequence.last_hidden.end(), kept.view().row(index));
        for (int64_t row = 1; row < part.num_rows; ++row)
            hidden_of.push_back(static_cast<int32_t>(part.first_row + row - 1));
        const std::byte* last = hidden.row(part.first_row + part.num_rows - 1);
        sequence.last_hidden.assign(last, last + hidden.cols * size_of(hidden.dtype));
    }
    cut(rows, cuts);
    return run_ranks([&](AttentionRank& rank, LayerObserver* observer) {
        return rank.draft({input_of(rows), hidden_of, kept.view()}, observer);
    });
}

Status TestReplica::draft_on(const std::vector<int32_t>& tokens) {
    CHECK(tokens.size() == last_parts_.size());
    Rows rows;
    std::vector<int32_t> hidden_of;
    for (size_t i = 0; i < tokens.size(); ++i) {
        Part& part = last_parts_[i];
        hidden_of.push_back(static_cast<int32_t>(part.first_row + part.num_rows - 1));
        part = {part.sequence, static_cast<int64_t>(i), 1, part.first_position + part.num_rows};
        add_rows(rows, part, {&tokens[i], 1});
    }
    return run_ranks([&](AttentionRank& rank, LayerObserver* observer) {
        return rank.draft({input_of(rows), hidden_of, {}}, observer);
    });
}

Status TestReplica::run_ranks(const std::function<Status(AttentionRank&, LayerObserver*)>& pass) {
    std::vector<Status> results(ranks_.size());
    std::vector<std::thread> threads;
    for (size_t i = 1; i < ranks_.size(); ++i)
        threads.emplace_back([&, i] { results[i] = pass(*ranks_[i], observers_[i]); });
    results[0] = pass(*ranks_[0], observers_[0]);
    for (std::thread& thread : threads) thread.join();
    for (Status& result : results) RETURN_IF_ERROR(std::move(result));
    return {};
}

Status TestReplica::prefill(int sequence, int64_t chunk, bool all_logits,
                            std::vector<float>& logits, const std::vector<int64_t>& cuts) {
    Sequence& s = sequences_[sequence];
    while (s.num_computed < static_cast<int64_t>(s.tokens.size())) {
        const int64_t rows =
            std::min(chunk, static_cast<int64_t>(s.tokens.size()) - s.num_computed);
        RETURN_IF_ERROR(step({{sequence, rows, all_logits}}, cuts));
        const ConstView computed = this->logits();
        const auto* values = computed.row_as<float>(0);
        logits.insert(logits.end(), values, values + computed.rows * computed.cols);
    }
    return {};
}

}  // namespace aerie::model
