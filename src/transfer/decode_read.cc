// Pull: the reads out of the prefill side's blocks. Begun on the courier's thread, so that the leader
// goes on decoding; ended on a thread of the fabric.
#include <thread>

#include "base/fault.h"
#include "transfer/block_runs.h"
#include "transfer/decode_side_impl.h"

namespace aerie::transfer {

void DecodeSideImpl::read(const std::shared_ptr<Arriving>& arriving) {
    {
        std::lock_guard lock(mutex_);
        if (arriving->cancelled || arriving->lost || arriving->stopped) return;
        ++arriving->reading;  // until all gets are begun; keeps the blocks as they are
        arriving->read_begin = Clock::now();
    }
    const auto gets = prepare_read(*arriving);
    const int num_layers = options_.pools.front().num_layers;
    bool all = gets.ok();
    for (int layer = 0; all && layer < num_layers; ++layer) {
        if (fault_planted(Fault::kKvTransferSlowed)) [[unlikely]] {
            std::this_thread::sleep_for(kSlowedLayer);
        }
        all = read_layer(*arriving, layer, gets.value());
    }
    if (all) {
        std::lock_guard lock(mutex_);
        arriving->all_begun = true;
    }
    read_ended(*arriving, gets ? Status() : Status(gets.error()));
}

Result<std::vector<PreparedGet>> DecodeSideImpl::prepare_read(const Arriving& arriving) {
    if (const std::string why = fault_in(*arriving.done, arriving); !why.empty()) return error("{}", why);
    const Pool& pool = options_.pools.front();
    auto source = attach(fabric_, arriving.done->source(), static_cast<int>(arriving.blocks.size()),
                         pool);
    if (!source) return source.error();
    if (source->first_block > arriving.first_block) {
        return error("the prefill side has KV from block {} on, expected block {}", source->first_block,
                     arriving.first_block);
    }
    const BlockTable local{.blocks = arriving.blocks, .first_block = 0, .cp = regions_.cp()};
    const BlockTable remote{.blocks = source->blocks,
                            .first_block = source->first_block,
                            .cp = static_cast<int>(source->pools.size())};
    std::vector<PreparedGet> gets;
    for (int c = 0; c < regions_.cp(); ++c) {
        std::vector<BlockRun> runs;
        append_runs(local, remote, c, pool.page_size, arriving.first_block * pool.page_size, arriving.num_tokens,
                    runs);
        plant_run_fault(runs, pool.page_size, false);
        for (int remote_cp = 0; remote_cp < remote.cp; ++remote_cp) {
            PreparedGet get{.pool = source->pools[remote_cp], .local_cp = c, .pieces = {}};
            for (const BlockRun& run : runs) {
                if (run.remote_cp != remote_cp) continue;
                get.pieces.push_back({.offset = get.pool.offset(0, run.remote),
                                      .local = options_.pools[c].base + options_.pools[c].offset(0, run.local),
                                      .bytes = run.num_tokens * pool.token_bytes});
            }
            if (!get.pieces.empty()) gets.push_back(std::move(get));
        }
    }
    return gets;
}

// False where the rest would be in vain.
bool DecodeSideImpl::read_layer(Arriving& arriving, int layer, const std::vector<PreparedGet>& gets) {
    for (const PreparedGet& get : gets) {
        std::vector<comm::Piece> pieces = get.pieces;
        for (comm::Piece& piece : pieces) {
            piece.offset += layer * get.pool.layer_bytes();
            piece.local += layer * options_.pools[get.local_cp].layer_bytes();
        }
        {
            std::lock_guard lock(mutex_);
            if (arriving.cancelled || arriving.lost || arriving.stopped || !arriving.failure.empty()) return false;
            ++arriving.reading;
            for (const comm::Piece& piece : pieces) arriving.bytes += piece.bytes;
        }
        Arriving* const reading = &arriving;  // lives until read_ended()
        const Status begun = fabric_.get(
            get.pool.region, pieces, [this, reading](const Status& status) { read_ended(*reading, status); });
        if (!begun) read_ended(arriving, begun);
    }
    return true;
}

// A get has ended, or the last has been begun.
void DecodeSideImpl::read_ended(Arriving& arriving, const Status& status) {
    Locked locked(*this);
    --arriving.reading;
    if (!status && arriving.failure.empty()) {
        arriving.failure = fmt::format("the KV could not be read: {}", status.message());
    }
    settle(arriving, locked);
}

}  // namespace aerie::transfer
