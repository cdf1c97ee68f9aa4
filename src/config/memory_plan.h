// How much memory each card needs, and how many KV tokens fit: computed from config.json's sizes
// alone, so that `aerie check` can do it without cards or weights. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/model_config.h"
#include "config/placement.h"

namespace aerie {

// Rows of a step whose logits prompts may want for their own logprobs.
inline constexpr int kPromptLogprobRows = 256;
// New tokens of a step with chunking off; one prompt may be more.
inline constexpr int kMaxPrefillTokens = 16384;

struct CardMemory {
    int node, card;
    int64_t attention_weights = 0, expert_weights = 0;  // bytes
    int64_t kv = 0;                                     // bytes of KV pool
    int64_t host_kv = 0;  // bytes of evicted KV, where host memory is the card's (on a CPU)
    int64_t activations = 0;                            // bytes: step buffers and mailboxes
    int64_t runtime = 0;  // bytes that CUDA takes of a GPU in the process
    int64_t used() const {
        return attention_weights + expert_weights + kv + host_kv + activations + runtime;
    }
};

// One replica's pool and batch.
struct KvSizing {
    int64_t max_total_num_tokens = 0;  // a multiple of page_size
    int num_blocks = 0;                // blocks of page_size tokens, over all cp ranks
    int num_host_blocks = 0;           // of host memory, over all cp ranks
    int num_file_blocks = 0;           // of hicache_path, over all cp ranks
    int max_running_requests = 0;
    std::string reason;                // which setting or memory limits the tokens, with the numbers
};

struct MemoryPlan {
    int64_t card_memory = 0;           // bytes that one card has
    std::vector<CardMemory> cards;     // by node, then card; only those with a role
    std::vector<KvSizing> replicas;    // [replica]
    int64_t max_total_num_tokens = 0;  // of the smallest replica
    std::string reason;                // its
};

MemoryPlan plan_memory(const Config& config, const ModelConfig& model, const Placement& placement,
                       int64_t card_memory);

// Rows of the largest step that the scheduler of a replica may plan, or of a draft after it.
int step_rows_max(const Config& config, Role role, int max_running_requests);
// Of these, rows whose logits a GPU has room for: one of each request and those of prompts whose
// logprobs are wanted.
int logits_rows_max(const Config& config, Role role, int max_running_requests);
// Decode steps of so many rows are CUDA graphs; ascending, at most kGraphRowsMax.
inline constexpr int64_t kGraphRowsMax = 512;
std::vector<int64_t> graph_rows_of(int max_running_requests);

// Bytes of KV of one token over all layers on one attention rank, were cp 1.
int64_t kv_bytes_per_token(const Config& config, const ModelConfig& model);

// "20.1 GiB"
std::string format_bytes(int64_t bytes);
// "141G", "512M", "80GiB", "1.5T": powers of 1024. 0 where it is no size.
int64_t parse_bytes(const std::string& text);

}  // namespace aerie
