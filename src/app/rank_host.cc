#include "app/rank_host.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/port_numbers.h"
#include "config/environment.h"
#include "exchange/staged_side.h"
#include "model/attention_weights.h"
#include "model/expert_weights.h"
#include "model/model_support.h"

namespace aerie {
namespace {

// DraftCost, as it fits measured decode speeds of 1 and 16 requests with and without drafts.
constexpr double kFreeRowsOnCpu = 40;

transfer::Pool transfer_pool(KvPool& pool, const std::string& key, Device device) {
    transfer::Pool out;
    out.base = pool.layer(0);
    out.num_layers = pool.num_layers();
    out.num_blocks = static_cast<int>(pool.num_blocks());
    out.page_size = pool.page_size();
    out.token_bytes = pool.block_bytes() / pool.page_size();
    out.key = key;
    out.device = device;
    return out;
}

transfer::Policy transfer_policy(KvTransfer configured) {
    switch (configured) {
        case KvTransfer::kActive: return transfer::Policy::kActive;
        case KvTransfer::kPassive: return transfer::Policy::kPassive;
        default: return transfer::Policy::kActivePassive;
    }
}

Status plant_fault() {
    const std::string name = test_fault_from_environment();
    if (name.empty()) return {};
    const auto fault = parse_fault(name);
    if (!fault) return fault.error();
    planted_fault = static_cast<int>(fault.value());
    log_warning("AERIE_TEST_FAULT={}: answers are wrong on purpose", name);
    return {};
}

}  // namespace

RankHost::RankHost(const RankHostOptions& options) : options_(options) {}

RankHost::~RankHost() { stop(); }

Result<std::unique_ptr<RankHost>> RankHost::start(const RankHostOptions& options) {
    std::unique_ptr<RankHost> host(new RankHost(options));
    const TimePoint begin = Clock::now();
    const Settings& settings = host->config().settings;
    Result<std::unique_ptr<model::TensorSource>> source =
        settings.load_format == LoadFormat::kDummy
            ? model::make_dummy_source(static_cast<uint64_t>(settings.random_seed.value_or(0)),
                                       host->model().quantization_config.has_value())
            : model::open_checkpoint(settings.model_path, model::ReadMode::kAuto);
    if (!source) return source.error();
    if (settings.load_format != LoadFormat::kDummy)
        RETURN_IF_ERROR(model::check_num_layers(**source, host->model().num_hidden_layers));
    host->weights_ = std::make_unique<model::WeightStore>(
        *std::move(source), model::WeightOptions{.compute = host->compute(),
                                                 .keep_fp8 = host->device() == Device::kCuda,
                                                 .device = host->device()});
    RETURN_IF_ERROR(host->load_experts());
    RETURN_IF_ERROR(host->load_replicas());
    const double seconds = seconds_since(begin);
    const auto read = static_cast<double>(host->weights_->read_bytes());
    log_info("weights loaded in {:.2f} s: {:.1f} MB read ({:.0f} MB/s), {:.1f} MB held, from {}",
             seconds, read * 1e-6, read * 1e-6 / seconds,
             static_cast<double>(host->weights_->held_bytes()) * 1e-6,
             host->weights_->description());
    host->weights_->close_source();
    RETURN_IF_ERROR(plant_fault());
    host->run_threads();
    return host;
}

Status RankHost::load_experts() {
    Stream stream(options_.pool);
    for (const RankPlace& place : placement().experts) {
        if (place.node != options_.node) continue;
        const auto [begin, end] = experts_of(place.ep, placement().expert_ep(), model().n_routed_experts);
        auto routed = model::load_routed_experts(
            model(), {.expert_begin = begin, .expert_end = end, .with_mtp = with_mtp()}, *weights_,
            stream);
        if (!routed) return routed.error();
        if (device() == Device::kCuda) card_experts_ = *routed;
        if (device() == Device::kCuda && !placement().experts_serve_others()) continue;
        expert::ExpertRankOptions options;
        options.side = expert_side_options(place);
        options.card = card_experts_options(options.side);
        options.pool = options_.pool;
        options.first_expert = begin;
        options.metrics = metrics::ExpertMetrics(registry_, config().settings.served_model_name, place.ep);
        for (const auto* layer : routed->layers) {
            options.layers.push_back(layer == nullptr ? std::span<const kernels::ExpertWeights>()
                                                      : std::span(*layer));
        }
        experts_.push_back(std::make_unique<expert::ExpertRank>(std::move(options)));
    }
    return {};
}

Status RankHost::load_replicas() {
    if (options_.tokenizer != nullptr) {
        const auto& eos_ids = model().eos_token_ids;
        grammars_ = std::make_unique<grammar::Compiler>(
            *options_.tokenizer,
            grammar::CompilerOptions{.eos_ids = {eos_ids.begin(), eos_ids.end()}});
    }
    for (const AttentionReplica& place : placement().replicas) {
        if (place.node != options_.node) continue;
        if (rope_ == nullptr) {
            rope_ = std::make_unique<kernels::RopeTable>(
                model::rope_params(model()), *config().settings.context_length, device());
        }
        auto replica = std::make_unique<Replica>();
        replica->place = place;
        RETURN_IF_ERROR(load_replica(*replica));
        replicas_.push_back(std::move(replica));
    }
    return {};
}

// What peers write into or read from is the fabric's memory, so that those of this machine copy to and
// from it themselves.
Status RankHost::make_pools(Replica& replica) {
    const cache::KvBlocksOptions kv = kv_blocks_options(replica.place);
    const KvPoolShape shape{.num_layers = model().num_hidden_layers + (with_mtp() ? 1 : 0),
                            .num_blocks = kv.num_blocks,
                            .page_size = kv.page_size,
                            .width = model().latent_dim(),
                            .dtype = compute()};
    KvPoolShape host_shape = shape;
    host_shape.num_blocks = kv.lower.num_host_slots;
    for (int c = 0; c < replica.place.cp_size; ++c) {
        if (replica.place.role == Role::kUnified) {
            replica.pools.push_back(std::make_unique<KvPool>(shape, device()));
        } else {
            auto region = options_.fabric->allocate_memory(shape.num_bytes(), device());
            if (!region) return error("no memory for the KV cache: {}", region.message());
            replica.regions.emplace_back(*options_.fabric, *std::move(region));
            replica.pools.push_back(std::make_unique<KvPool>(shape, replica.regions.back().base()));
        }
        replica.host_pools.push_back(host_shape.num_blocks > 0 ? std::make_unique<KvPool>(host_shape) : nullptr);
    }
    make_files(replica, shape);
    return {};
}

Status RankHost::load_replica(Replica& replica) {
    const AttentionReplica& place = replica.place;
    RETURN_IF_ERROR(make_pools(replica));
    Stream stream(options_.pool);
    for (int t = 0; t < place.tp_size; ++t) {
        auto weights = model::load_attention_weights(
            model(),
            {.tp = t,
             .tp_size = place.tp_size,
             .with_mtp = with_mtp(),
             .can_expand = !deterministic()},
            *weights_, stream);
        if (!weights) return weights.error();
        replica.weights.push_back(std::make_unique<model::AttentionWeights>(*std::move(weights)));
    }
    const metrics::AttentionMetrics metrics(registry_,
                                            {.model_name = config().settings.served_model_name,
                                             .engine_type = name_of(place.role),
                                             .dp_rank = place.dp_rank});
    // A rank may wait for experts as long as the exchange lets it; the others then wait for it.
    auto group = comm::make_local_group(static_cast<int>(place.ranks.size()),
                                        config().ae_separation.exchange_timeout_s * 2);
    std::vector<engine::Team::Rank> ranks;
    for (int c = 0; c < place.cp_size; ++c) {
        for (int t = 0; t < place.tp_size; ++t) {
            auto rank = make_rank(replica, {t, place.tp_size, c, place.cp_size}, metrics, *group);
            if (!rank) return rank.error();
            ranks.push_back(*std::move(rank));
        }
    }
    replica.team = std::make_unique<engine::Team>(fmt::format("{}-{}", name_of(place.role), place.dp_rank),
                                                  std::move(ranks), std::move(group), metrics);
    return make_leader(replica, metrics);
}

// A replica serves as well without its files.
void RankHost::make_files(Replica& replica, KvPoolShape shape) {
    shape.num_blocks = kv_blocks_options(replica.place).lower.num_file_slots;
    for (int c = 0; shape.num_blocks > 0 && c < replica.place.cp_size; ++c) {
        auto file = KvFile::create(config().settings.hicache_path, shape);
        if (!file) {
            log_error("hicache_path: {}; evicted KV is not kept on disk", file.message());
            return replica.files.clear();
        }
        replica.files.push_back(*std::move(file));
    }
}

std::unique_ptr<exchange::AttentionSide> RankHost::make_exchange(
    const Replica& replica, const model::RankPlaceInReplica& place,
    const metrics::AttentionMetrics& metrics, Stream& stream) {
    if (computes_experts(replica.place))
        return exchange::make_card_side(card_side_options(replica.place, stream));
    exchange::AttentionSideOptions options =
        attention_side_options(replica.place.ranks[place.index()]);
    options.metrics = metrics;
    if (place.index() != 0) {  // times come from the leader alone, bytes from all
        options.metrics.dispatch_time = {};
        options.metrics.combine_wait_time = {};
    }
    auto mailboxes = exchange::make_attention_side(std::move(options));
    if (device() == Device::kCpu) return mailboxes;
    return exchange::make_staged_side({.stream = &stream,
                                       .hidden = model().hidden_size,
                                       .topk = model().num_experts_per_tok,
                                       .max_rows = dispatch_rows_max(replica.place)},
                                      std::move(mailboxes));
}

Result<engine::Team::Rank> RankHost::make_rank(const Replica& replica,
                                           const model::RankPlaceInReplica& place,
                                           const metrics::AttentionMetrics& metrics,
                                           comm::Group& group) {
    engine::Team::Rank rank;
    rank.place = place;
    rank.stream = std::make_unique<Stream>(options_.pool, device());
    rank.stream->set_quantises_rows(device() == Device::kCuda && !deterministic());
    rank.exchange = make_exchange(replica, place, metrics, *rank.stream);
    if (computes_experts(replica.place))
        rank.experts = metrics::ExpertMetrics(registry_, config().settings.served_model_name, 0);
    const int max_rows = step_rows_max(replica.place);
    auto made = model::AttentionRank::create({.config = &model(),
                                              .weights = replica.weights[place.tp].get(),
                                              .rope = rope_.get(),
                                              .pool = replica.pools[place.cp].get(),
                                              .group = &group,
                                              .experts = rank.exchange.get(),
                                              .stream = rank.stream.get(),
                                              .place = place,
                                              .max_rows = max_rows,
                                              .max_logits_rows = logits_rows_max(replica.place),
                                              .tile_rows = tile_rows(),
                                              .max_sequences = max_running(replica.place),
                                              .deterministic = deterministic(),
                                              .graph_rows = graph_rows(replica.place),
                                              .kv_leaves = pushes_kv(replica.place)});
    if (!made) return made.error();
    rank.model = *std::move(made);
    rank.pool = replica.pools[place.cp].get();
    rank.host_pool = replica.host_pools[place.cp].get();
    if (!replica.files.empty()) rank.file = replica.files[place.cp].get();
    return rank;
}

Status RankHost::make_leader(Replica& replica, const metrics::AttentionMetrics& metrics) {
    engine::LeaderOptions options;
    options.name = fmt::format("{} replica {}", name_of(replica.place.role), replica.place.dp_rank);
    options.scheduler = scheduler_options(replica.place);
    cache::LowerTiers& lower = options.scheduler.kv.lower;
    if (replica.files.empty()) lower.num_file_slots = 0;
    lower.make_copies = [team = replica.team.get()](std::span<const cache::KvCopy> copies) {
        return team->copy(copies);
    };
    options.sampler = {.vocab_size = model().vocab_size,
                       .num_ids = options_.num_token_ids,
                       .eos_ids = options.scheduler.eos_ids};
    // A card's attention and experts take turns, so that cutting a step gains nothing.
    options.microbatches =
        device() == Device::kCuda ? 1 : config().ae_separation.microbatches.value_or(0);
    options.drafting = {.enabled = config().settings.enable_mtp,
                        .num_steps = options.scheduler.num_drafts,
                        .cost = {.free_rows = kFreeRowsOnCpu,
                                 .layer_share = 1.0 / model().num_hidden_layers}};
    options.metrics = metrics;
    options.hashes_prompts = device() == Device::kCpu;
    options.pool = options_.pool;
    options.grammars = grammars_.get();
    options.publish = [this](std::vector<TokenOut> tokens) { options_.tokens->emit(std::move(tokens)); };
    options.flushed = [this](uint64_t query, const std::string& why) {
        options_.tokens->flushed(query, why);
    };
    replica.leader = std::make_unique<engine::Leader>(std::move(options), *replica.team);
    replica.leader->set_handoff(make_handoff(replica, metrics));
    return {};
}

std::unique_ptr<engine::KvHandoff> RankHost::make_handoff(Replica& replica,
                                                          const metrics::AttentionMetrics& metrics) {
    std::vector<transfer::Pool> pools;
    for (size_t c = 0; c < replica.regions.size(); ++c)
        pools.push_back(transfer_pool(*replica.pools[c], replica.regions[c].key(), device()));
    std::vector<comm::Destination> prefill, decode;  // [dp_rank of the role]
    for (const AttentionReplica& other : placement().replicas) {
        const bool decodes = other.role == Role::kDecode;
        (decodes ? decode : prefill)
            .push_back({other.node, comm::kv_port(decodes, other.dp_rank)});
    }
    engine::Leader* leader = replica.leader.get();
    auto notify = [leader] { leader->wake(); };
    switch (replica.place.role) {
        case Role::kPrefill:
            return engine::make_prefill_handoff(leader->scheduler(),
                                                {.replica = replica.place.dp_rank,
                                                 .fabric = options_.fabric,
                                                 .decode = std::move(decode),
                                                 .pools = std::move(pools),
                                                 .vocab_size = model().vocab_size,
                                                 .lease_s = config().ae_separation.kv_lease_s,
                                                 .notify = notify,
                                                 .metrics = metrics},
                                                transfer_policy(config().ae_separation.kv_transfer));
        case Role::kDecode:
            return engine::make_decode_handoff(leader->scheduler(),
                                               {.replica = replica.place.dp_rank,
                                                .fabric = options_.fabric,
                                                .prefill = std::move(prefill),
                                                .pools = std::move(pools),
                                                .vocab_size = model().vocab_size,
                                                .notify = notify,
                                                .metrics = metrics},
                                               [leader] { leader->copy_kv(); });
        default: return engine::make_unified_handoff(leader->scheduler());
    }
}

void RankHost::run_threads() {
    for (size_t i = 0; i < experts_.size(); ++i) {
        expert_threads_.emplace_back([this, i] {
            set_thread_name(fmt::format("expert-{}", i));
            experts_[i]->run();
        });
    }
    for (auto& replica : replicas_) {
        replica->thread = std::thread([leader = replica->leader.get(), place = replica->place] {
            set_thread_name(fmt::format("{}-{}", name_of(place.role), place.dp_rank));
            leader->run();
        });
    }
}

void RankHost::add(const Request& request) {
    for (auto& replica : replicas_) {
        const bool decodes = replica->place.role == Role::kDecode;
        const int wanted = decodes ? request.decode_replica : request.prefill_replica;
        if (replica->place.dp_rank == wanted) replica->leader->put(request);
    }
}

void RankHost::abort(RequestId id) {
    for (auto& replica : replicas_) replica->leader->put(engine::AbortRequest{id});
}

void RankHost::flush_cache(uint64_t query) {
    for (auto& replica : replicas_) replica->leader->put(engine::FlushCache{query});
}

metrics::Snapshot RankHost::metrics() { return registry_.collect(); }

std::vector<double> RankHost::rank_idle_seconds() {
    std::vector<double> seconds;
    for (const auto& replica : replicas_) seconds.push_back(replica->leader->idle_seconds());
    for (const auto& expert : experts_) seconds.push_back(expert->idle_seconds());
    return seconds;
}

// Attention first: its last steps still need the experts.
void RankHost::stop() {
    if (std::exchange(stopped_, true)) return;
    for (auto& replica : replicas_) replica->leader->stop();
    for (auto& replica : replicas_) {
        if (replica->thread.joinable()) replica->thread.join();
    }
    for (auto& expert : experts_) expert->stop();
    for (auto& thread : expert_threads_) thread.join();
}

}  // namespace aerie
