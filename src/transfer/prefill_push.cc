// The writes of a step: prepared by the leader before it begins, done by the ranks layer by layer.
#include <chrono>
#include <thread>

#include "base/fault.h"
#include "transfer/block_runs.h"
#include "transfer/prefill_side_impl.h"

namespace aerie::transfer {

void PrefillSideImpl::prepare(std::span<const PushChunk> chunks) {
    for (auto& puts : prepared_) puts.clear();
    std::lock_guard lock(mutex_);
    for (const PushChunk& chunk : chunks) {
        const auto outgoing = newest(chunk.id);
        if (outgoing == nullptr || outgoing->ended || !outgoing->target) continue;
        prepare_chunk(chunk, outgoing);
    }
}

void PrefillSideImpl::prepare_chunk(const PushChunk& chunk, const std::shared_ptr<Outgoing>& outgoing) {
    const RemoteBlocks& target = *outgoing->target;
    const Pool& pool = options_.pools.front();
    const int end = chunk.first_token + chunk.num_tokens;
    // What the decode side has already is not written.
    const int begin = std::max(chunk.first_token, target.first_block * pool.page_size);
    if (begin >= end) return;
    const BlockTable local{.blocks = chunk.blocks, .first_block = 0, .cp = regions_.cp()};
    const BlockTable remote{.blocks = target.blocks,
                            .first_block = target.first_block,
                            .cp = static_cast<int>(target.pools.size())};
    std::vector<BlockRun> runs;
    for (int c = 0; c < regions_.cp(); ++c) {
        runs.clear();
        append_runs(local, remote, c, pool.page_size, begin, end, runs);
        plant_run_fault(runs, pool.page_size, true);
        for (int remote_cp = 0; remote_cp < remote.cp; ++remote_cp) {
            PreparedPut put{.outgoing = outgoing, .pool = target.pools[remote_cp], .pieces = {}};
            for (const BlockRun& run : runs) {
                if (run.remote_cp != remote_cp) continue;
                const size_t bytes = run.num_tokens * pool.token_bytes;
                put.pieces.push_back({.offset = put.pool.offset(0, run.remote),
                                      .local = options_.pools[c].base + options_.pools[c].offset(0, run.local),
                                      .bytes = bytes});
                put.bytes += bytes;
            }
            if (!put.pieces.empty()) prepared_[c].push_back(std::move(put));
        }
    }
}

void PrefillSideImpl::push(int cp_rank, int layer) {
    if (fault_planted(Fault::kKvTransferSlowed) && !prepared_[cp_rank].empty()) [[unlikely]] {
        std::this_thread::sleep_for(kSlowedLayer);
    }
    const Pool& pool = options_.pools[cp_rank];
    std::vector<comm::Piece>& pieces = scratch_[cp_rank];
    for (const PreparedPut& put : prepared_[cp_rank]) {
        Outgoing* outgoing = put.outgoing.get();
        {
            std::lock_guard lock(mutex_);
            if (outgoing->ended) continue;
            ++outgoing->writing;  // keeps it until written()
            outgoing->bytes += put.bytes;
            if (outgoing->first_push == TimePoint{}) outgoing->first_push = Clock::now();
        }
        pieces.assign(put.pieces.begin(), put.pieces.end());
        for (comm::Piece& piece : pieces) {
            piece.offset += layer * put.pool.layer_bytes();
            piece.local += layer * pool.layer_bytes();
        }
        const Status begun = fabric_.put(put.pool.region, pieces, [this, outgoing](const Status& status) {
            written(*outgoing, status);
        });
        if (!begun) written(*outgoing, begun);
    }
}

void PrefillSideImpl::written(Outgoing& outgoing, const Status& status) {
    Locked locked(*this);
    --outgoing.writing;
    if (status || outgoing.ended) return settle(outgoing, locked);
    const std::string why = fmt::format("the KV could not be written: {}", status.message());
    end_with(outgoing, cancel_message(outgoing.id, outgoing.attempt, why), why, locked);
}

}  // namespace aerie::transfer
