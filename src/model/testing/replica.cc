#include "model/testing/replica.h"

#include <algorithm>
#include <thread>

#include "config/placement.h"
#include "model/model_support.h"

namespace aerie::model {
namespace {

constexpr double kWaitSeconds = 120;

std::unique_ptr<kernels::RopeTable> make_rope(const ModelConfig& config) {
    return std::make_unique<kernels::RopeTable>(
        rope_params(config), std::min(config.max_position_embeddings, 16384));
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
    model->rope = make_rope(model->config);
    return model;
}

std::unique_ptr<TestModel> TestModel::dummy(const ModelConfig& config, const WeightOptions& options,
                                            uint64_t seed) {
    auto model = std::make_unique<TestModel>();
    model->config = config;
    model->store = std::make_unique<WeightStore>(
        make_dummy_source(seed, config.quantization_config.has_value()), options);
    model->rope = make_rope(config);
    return model;
}

Result<std::unique_ptr<TestReplica>> TestReplica::create(TestModel& model,
                                                         const ReplicaOptions& options) {
    std::unique_ptr<TestReplica> replica(new TestReplica(model, options));
    if (options.num_threads > 1)
        replica->threads_ = std::make_unique<ThreadPool>(ThreadPoolOptions{options.num_threads - 1});
    Stream stream(replica->threads_.get());
    RETURN_IF_ERROR(replica->load_weights(stream));
    RETURN_IF_ERROR(replica->make_ranks());
    return replica;
}

Status TestReplica::load_weights(Stream& stream) {
    for (int tp = 0; tp < options_.tp_size; ++tp) {
        auto weights = load_attention_weights(
            model_.config,
            {.tp = tp, .tp_size = options_.tp_size, .can_expand = options_.expand}, *model_.store,
            stream);
        if (!weights) return weights.error();
        weights_.push_back(std::make_unique<AttentionWeights>(*std::move(weights)));
    }
    for (int ep = 0; ep < options_.ep_size; ++ep) {
        const auto [begin, end] = experts_of(ep, options_.ep_size, model_.config.n_routed_experts);
        auto experts = load_routed_experts(
            model_.config, {.expert_begin = begin, .expert_end = end}, *model_.store, stream);
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
        pools_.push_back(std::make_unique<KvPool>(KvPoolShape{
            .num_layers = config.num_hidden_layers,
            .num_blocks = blocks,
            .page_size = options_.page_size,
            .width = config.latent_dim(),
            .dtype = model_.store->options().compute}));
        next_block_.push_back(0);
    }
    if (size > 1) group_ = comm::make_local_group(size, kWaitSeconds);
    std::vector<const RoutedExperts*> expert_ranks;
    for (const auto& rank : expert_ranks_) expert_ranks.push_back(rank.get());
    observers_.resize(static_cast<size_t>(size));
    for (int index = 0; index < size; ++index) {
        const int tp = index % options_.tp_size, cp = index / options_.tp_size;
        streams_.push_back(std::make_unique<Stream>(threads_.get()));
        experts_.push_back(std::make_unique<DirectExperts>(expert_ranks, streams_.back().get()));
        auto rank = AttentionRank::create({.config = &config,
                                           .weights = weights_[tp].get(),
                                           .rope = model_.rope.get(),
                                           .pool = pools_[cp].get(),
                                           .group = group_.get(),
                                           .experts = experts_.back().get(),
                                           .stream = streams_.back().get(),
                                           .place = {tp, options_.tp_size, cp, options_.cp_size},
                                           .max_rows = options_.max_rows,
                                           .max_logits_rows = options_.max_logits_rows,
                                           .tile_rows = options_.tile_rows,
                                           .profile = index == 0 ? options_.profile : nullptr});
        if (!rank) return rank.error();
        ranks_.push_back(*std::move(rank));
    }
    return {};
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

Status TestReplica::step(const std::vector<StepPart>& parts, const std::vector<int64_t>& cuts) {
    std::vector<int32_t> tokens, logits_rows;
    std::vector<SequenceSlice> slices;
    for (const StepPart& part : parts) {
        Sequence& sequence = sequences_[part.sequence];
        const int64_t begin = sequence.num_computed, end = begin + part.num_tokens;
        CHECK(end <= static_cast<int64_t>(sequence.tokens.size()));
        reserve_blocks(sequence, end);
        const auto first_row = static_cast<int64_t>(tokens.size());
        slices.push_back({first_row, part.num_tokens, begin, sequence.block_tables});
        for (int64_t i = begin; i < end; ++i) {
            if (part.all_logits || i + 1 == end)
                logits_rows.push_back(static_cast<int32_t>(tokens.size()));
            tokens.push_back(sequence.tokens[i]);
        }
    }
    std::vector<int64_t> microbatch_begin = {0};
    for (int64_t cut : cuts) {
        if (cut > microbatch_begin.back() && cut < static_cast<int64_t>(tokens.size()))
            microbatch_begin.push_back(cut);
    }
    RETURN_IF_ERROR(run_ranks({.tokens = tokens,
                               .sequences = slices,
                               .microbatch_begin = microbatch_begin,
                               .phase = Phase::kPrefill,
                               .logits_rows = logits_rows}));
    for (const StepPart& part : parts) sequences_[part.sequence].num_computed += part.num_tokens;
    return {};
}

Status TestReplica::run_ranks(const StepInput& input) {
    std::vector<Status> results(ranks_.size());
    std::vector<std::thread> threads;
    for (size_t i = 1; i < ranks_.size(); ++i)
        threads.emplace_back([&, i] { results[i] = ranks_[i]->forward(input, observers_[i]); });
    results[0] = ranks_[0]->forward(input, observers_[0]);
    for (std::thread& thread : threads) thread.join();
    for (Status& result : results) RETURN_IF_ERROR(std::move(result));
    return {};
}

Status TestReplica::prefill(int sequence, int64_t chunk, bool all_logits, std::vector<float>& logits,
                            const std::vector<int64_t>& cuts) {
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
