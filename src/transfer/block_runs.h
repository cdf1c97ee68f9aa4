// Which pieces of memory a transfer copies: the blocks of a sequence lie in other places, and over
// another number of context-parallel ranks, on either side.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

namespace aerie::transfer {

// Where one side keeps a sequence: block b is number blocks[b - first_block] of pool b mod cp.
struct BlockTable {
    std::span<const int32_t> blocks;
    int first_block = 0;
    int cp = 1;
    int32_t number(int block) const { return blocks[block - first_block]; }
};

// Blocks that lie side by side in one pool of either side, in the same order.
struct BlockRun {
    int local_cp, remote_cp;
    int32_t local, remote;  // the first block's number
    int num_tokens;         // the last block may be part full
    bool operator==(const BlockRun&) const = default;
};

// Appends the runs of the tokens [begin, end) that lie in pool local_cp; begin is at a page border.
// Both tables hold their blocks.
void append_runs(const BlockTable& local, const BlockTable& remote, int local_cp, int page_size,
                 int begin, int end, std::vector<BlockRun>& out);

// Test hooks. Fault::kKvRunShifted: the first run of more than a page comes from a block further on.
// Fault::kKvTransferSlowed: each layer of each transfer waits that long, so that a kill meets it.
void plant_run_fault(std::vector<BlockRun>& runs, int page_size, bool local_is_source);
constexpr auto kSlowedLayer = std::chrono::milliseconds(100);

}  // namespace aerie::transfer
