// Counts: a scheduler's state in numbers, for metrics and the log.
#pragma once

#include <cstdint>

namespace aerie::schedule {

struct Counts {
    int num_running = 0;
    int num_waiting = 0;    // unified, prefill: the queue; decode: expected and queued
    int num_queued = 0;     // decode: announced, waiting for blocks
    int num_offered = 0;    // decode: waiting for KV
    int num_prefilled = 0;  // prefill: waiting for the acknowledgement
    int64_t used_tokens = 0;  // without what only the prefix cache holds
    int64_t capacity = 0;
    int64_t free_tokens = 0;       // with it
    int64_t evictable_tokens = 0;  // what only the prefix cache holds
    int64_t host_tokens = 0;       // of the prefix cache, in host memory
    int64_t file_tokens = 0;       // and in the file behind it
    uint64_t num_device_hits = 0;  // tokens found in blocks, since the start
    uint64_t num_host_hits = 0;    // tokens brought back from host memory, since the start
    uint64_t num_file_hits = 0;    // and from the file
    uint64_t num_lost_pages = 0;   // that did not come back from it
    uint64_t num_retracted = 0;    // since the start
    double new_token_ratio = 0;
};

}  // namespace aerie::schedule
