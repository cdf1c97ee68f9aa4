#include "app/host_session.h"

#include <algorithm>
#include <thread>

#include "app/fingerprint.h"
#include "app/peer_links.h"
#include "app/rank_host.h"
#include "base/clock.h"
#include "base/log.h"
#include "config/keys.h"
#include "config/report.h"
#include "tensor/card.h"
#include "tokenizer/tokenizer.h"

namespace aerie {
namespace {

control::HostIdentity identity_of(const HostSession& session) {
    const Config& config = session.loaded.config;
    return {.node = session.fabric.node(),
            .epoch = session.fabric.epoch(),
            .version = AERIE_VERSION,
            .config_fingerprint = config_fingerprint(config),
            .model_fingerprint = model_fingerprint(config.settings.model_path),
            .fabric_address = session.fabric.address()};
}

// That a GPU has what is planned, before any of it is asked for. What a host that has just died held may
// still be on its way back.
Status wait_for_memory(const LoadedConfig& loaded, int node) {
    constexpr double kWaitSeconds = 5;
    if (loaded.config.device != DeviceChoice::kCuda) return {};
    const TimePoint deadline = after(kWaitSeconds);
    for (const CardMemory& card : loaded.memory.cards) {
        if (card.node != node) continue;
        for (;;) {
            Status status = check_free_memory(loaded, node, card.card, card::memory_free());
            if (status) break;
            if (Clock::now() > deadline) return status;
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
    }
    return {};
}

Result<std::unique_ptr<RankHost>> start_ranks(const HostSession& session,
                                              control::TokenSink& tokens) {
    const int node = session.fabric.node();
    RETURN_IF_ERROR(wait_for_memory(session.loaded, node));
    RankHostOptions options{.loaded = &session.loaded,
                            .node = node,
                            .fabric = &session.fabric,
                            .tokens = &tokens,
                            .pool = &session.pool};
    if (!session.loaded.placement.nodes[node].attention_ranks.empty()) {
        auto tokenizer = Tokenizer::load(session.loaded.config.settings.tokenizer_path);
        if (!tokenizer) return tokenizer.error();
        options.num_token_ids = (*tokenizer)->vocab_size();
        options.tokenizer = *std::move(tokenizer);
    }
    return RankHost::start(options);
}

}  // namespace

Result<control::HostLink::End> run_host_session(const HostSession& session,
                                                std::unique_ptr<control::Uplink> uplink) {
    constexpr double kForever = 1e9;  // seconds
    control::HostLink link(identity_of(session), std::move(uplink));
    PeerLinks peers(session.fabric, link);
    link.start(peers);
    auto ranks = start_ranks(session, link);
    if (!ranks) {
        link.report_failed("it", ranks.message());
        link.stop();  // it calls `peers`
        return ranks.error();
    }
    link.loaded(**ranks);
    const control::HostLink::End end = link.wait_end(after(kForever));
    // With the link open: the launcher keeps the experts until attention's link has closed, and a last
    // step needs them.
    (*ranks)->stop();
    link.stop();
    return end;
}

ThreadPoolOptions pool_options(const Config& config) {
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    const bool shared = !config.in_process && nodes_here(config).size() > 1;
    return {.num_workers = std::max(cores - 1, 0), .spin_us = shared ? 0 : -1};
}

}  // namespace aerie
