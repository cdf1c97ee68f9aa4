// How many rows a replica's steps have.
#include <algorithm>
#include <bit>

#include "config/memory_plan.h"

namespace aerie {

int step_rows_max(const Config& config, Role role, int max_running_requests) {
    const Settings& settings = config.settings;
    // A decode step's rows: those that drafts add, and, in its first MTP pass, one more for the
    // token that the prompt gave.
    const bool drafts = settings.enable_mtp && role != Role::kPrefill;
    const int decode_rows = max_running_requests * (1 + (drafts ? settings.mtp_num_steps : 0));
    const int begun_rows = settings.enable_mtp ? max_running_requests : 0;
    const int chunk = settings.chunked_prefill_size;
    if (role == Role::kDecode)  // the tail of a prompt may be computed here
        return std::max(decode_rows, chunk) + begun_rows;
    const int prefill_rows =
        chunk > 0 ? chunk : std::max(kMaxPrefillTokens, settings.context_length.value_or(0));
    return std::max(decode_rows, prefill_rows) + begun_rows;
}

int logits_rows_max(const Config& config, Role role, int max_running_requests) {
    const int prompt_rows = std::max(kPromptLogprobRows, config.settings.page_size);
    return std::min(step_rows_max(config, role, max_running_requests),
                    max_running_requests + prompt_rows);
}

// 1, 2, 4, 8, 16, then in steps of 8 to 32, of 16 to 64 and so on: of a step from 16 rows on at
// most a third is filled up.
std::vector<int64_t> graph_rows_of(int max_running_requests) {
    std::vector<int64_t> rows;
    const int64_t most = std::min<int64_t>(max_running_requests, kGraphRowsMax);
    for (int64_t n = 1; n < most; n += n < 16 ? n : std::bit_floor(static_cast<uint64_t>(n)) / 2)
        rows.push_back(n);
    rows.push_back(most);
    return rows;
}

}  // namespace aerie
