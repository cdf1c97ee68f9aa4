// Planted faults: a test hook that breaks one thing on purpose, to show that the exactness tests see
// it. None is planted in a normal run; the check is one relaxed load.
#pragma once

#include <atomic>
#include <string_view>

#include "base/result.h"

namespace aerie {

enum class Fault : int {
    kNone = 0,
    kExpertDropped,   // an expert rank leaves out one of its experts in one layer
    kKvBlockZeroed,   // the first KV block of a request is zeroed before decode
    kCombineLost,     // the rows of one expert rank are not added in one layer
    kKvBlocksSwapped, // the first two KV blocks of a request, with cp on two ranks, are swapped
    kRoundingMoved,   // the sum of one layer's experts is rounded before it is added
    kHostPageZeroed,  // one layer of a page that moves to host memory is zeroed
    kFilePageDamaged,    // a byte of every eighth page is flipped in the file of evicted pages
    kFilePageUnchecked,  // and the page is not checked when it is read
    kFileFull,           // the disk takes no page any more
    kMatchTooLong,    // the prefix cache is believed to hold one page more than it does
    kKvRunShifted,    // a run of KV blocks is transferred from one block further on
    kMtpHidden,       // the MTP layer sees no hidden row of the token before
    kDrawMoved,         // a card draws with the noise of the next position
    kKvTransferSlowed,  // each layer of a KV transfer takes 0.1 s longer: breaks nothing by itself
};

inline std::atomic<int> planted_fault{0};  // of the process

inline bool fault_planted(Fault fault) {
    return planted_fault.load(std::memory_order_relaxed) == static_cast<int>(fault);
}

inline Result<Fault> parse_fault(std::string_view name) {
    if (name == "none") return Fault::kNone;
    if (name == "expert_dropped") return Fault::kExpertDropped;
    if (name == "kv_block_zeroed") return Fault::kKvBlockZeroed;
    if (name == "kv_blocks_swapped") return Fault::kKvBlocksSwapped;
    if (name == "combine_lost") return Fault::kCombineLost;
    if (name == "rounding_moved") return Fault::kRoundingMoved;
    if (name == "host_page_zeroed") return Fault::kHostPageZeroed;
    if (name == "file_page_damaged") return Fault::kFilePageDamaged;
    if (name == "file_page_unchecked") return Fault::kFilePageUnchecked;
    if (name == "file_full") return Fault::kFileFull;
    if (name == "match_too_long") return Fault::kMatchTooLong;
    if (name == "kv_run_shifted") return Fault::kKvRunShifted;
    if (name == "mtp_hidden") return Fault::kMtpHidden;
    if (name == "draw_moved") return Fault::kDrawMoved;
    if (name == "kv_transfer_slowed") return Fault::kKvTransferSlowed;
    return error("fault \"{}\" is unknown, expected none, expert_dropped, kv_block_zeroed, "
                 "kv_blocks_swapped, combine_lost, rounding_moved, host_page_zeroed, "
                 "file_page_damaged, file_page_unchecked, file_full, match_too_long, "
                 "kv_run_shifted, mtp_hidden, draw_moved or kv_transfer_slowed", name);
}

}  // namespace aerie
