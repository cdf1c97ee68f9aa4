// What the configuration says of itself: the start-up lines, the table of placement, the memory of
// each card, and the same as JSON. Strings only; who prints them knows when they are true.
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"
#include "config/load.h"

namespace aerie {

inline constexpr const char* kInitializingLine = "[AE-SEP] Initializing AE separation framework...";
inline constexpr const char* kEnabledLine = "[AE-SEP] AE separation enabled successfully.";
inline constexpr const char* kReadyLine = "The server is fired up and ready to roll!";

// "[AE-SEP] Attention group: tp=4, cp=2, nodes=node-0,node-1"
std::string attention_group_line(const Config& config);
// "[AE-SEP] Expert group: ep=8, dp=2, nodes=node-2,node-3"
std::string expert_group_line(const Config& config);
// "[AE-SEP] KV transfer backend: nccl, mode: active_passive"; with one unified attention role, that
// no KV moves.
std::string kv_transfer_line(const Config& config);
// "[AE-SEP] AE separation is disabled: attention and experts share 32 cards (4 replicas, 4 expert
// copies)."
std::string disabled_line(const Config& config, const Placement& placement);

// Replicas and copies by role; the number of decode replicas follows from its cards.
std::string replicas_line(const Placement& placement);
// node, process, role, ranks, cards, memory; a line for each node and role.
std::string placement_table(const LoadedConfig& loaded);
// What takes how much on each card; cards of a node that need the same are one line.
std::string memory_table(const LoadedConfig& loaded);
// Of a host about to allocate: an error with that table where the GPU has less free memory, CUDA's own
// already taken, than the plan gives it.
Status check_free_memory(const LoadedConfig& loaded, int node, int card, int64_t free_memory);
// "max_total_num_tokens=…, chunked_prefill_size=…, max_running_requests=…, context_len=…"
std::string sizes_line(const LoadedConfig& loaded);
// "KV cache of prefill replica 0: 4096 tokens in 64 blocks (…why)"; a line for replicas that are alike.
std::string kv_lines(const LoadedConfig& loaded);

// {"separated", "nodes": […], "replicas": […], "expert_copies": […]}
Json placement_to_json(const Placement& placement);
Json memory_to_json(const MemoryPlan& memory);
// Everything that `aerie check --json` prints.
Json loaded_to_json(const LoadedConfig& loaded);

}  // namespace aerie
