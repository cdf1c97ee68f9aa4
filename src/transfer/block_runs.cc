#include "transfer/block_runs.h"

#include <algorithm>
#include <numeric>

#include "base/fault.h"

namespace aerie::transfer {

void append_runs(const BlockTable& local, const BlockTable& remote, int local_cp, int page_size,
                 int begin, int end, std::vector<BlockRun>& out) {
    // Blocks that many apart share both pools.
    const int stride = std::lcm(local.cp, remote.cp);
    const int first = begin / page_size;
    const int past = (end + page_size - 1) / page_size;
    for (int start = first; start < std::min(first + stride, past); ++start) {
        if (start % local.cp != local_cp) continue;
        for (int block = start; block < past;) {
            const int run = block;
            int tokens = std::min(page_size, end - block * page_size);
            for (block += stride; block < past; block += stride) {
                const int length = (block - run) / stride;
                if (local.number(block) != local.number(run) + length ||
                    remote.number(block) != remote.number(run) + length) {
                    break;
                }
                tokens += std::min(page_size, end - block * page_size);
            }
            out.push_back({.local_cp = local_cp,
                           .remote_cp = run % remote.cp,
                           .local = local.number(run),
                           .remote = remote.number(run),
                           .num_tokens = tokens});
        }
    }
}

void plant_run_fault(std::vector<BlockRun>& runs, int page_size, bool local_is_source) {
    if (!fault_planted(Fault::kKvRunShifted)) [[likely]] return;
    for (BlockRun& run : runs) {
        if (run.num_tokens <= page_size) continue;
        ++(local_is_source ? run.local : run.remote);
        run.num_tokens -= page_size;
        return;
    }
}

}  // namespace aerie::transfer
