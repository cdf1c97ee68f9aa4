#include "config/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/keys.h"

namespace aerie {
namespace {

// "0-3,6" of ascending numbers.
std::string ranges(const std::vector<int>& numbers) {
    std::string out;
    for (size_t i = 0; i < numbers.size();) {
        size_t end = i;
        while (end + 1 < numbers.size() && numbers[end + 1] == numbers[end] + 1) ++end;
        out += fmt::format("{}{}", out.empty() ? "" : ",", numbers[i]);
        if (end > i) out += fmt::format("-{}", numbers[end]);
        i = end + 1;
    }
    return out;
}

// Columns as wide as their widest cell.
std::string table(const std::vector<std::vector<std::string>>& rows) {
    std::vector<size_t> widths;
    for (const auto& row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string out;
    for (const auto& row : rows) {
        std::string line;
        for (size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
        line.erase(line.find_last_not_of(' ') + 1);
        out += line + '\n';
    }
    return out;
}

const CardMemory* memory_of(const MemoryPlan& memory, int node, int card) {
    for (const CardMemory& entry : memory.cards) {
        if (entry.node == node && entry.card == card) return &entry;
    }
    return nullptr;
}

Json ints(const std::vector<int>& numbers) {
    return Json(Json::Array(numbers.begin(), numbers.end()));
}

Json strings(const std::vector<std::string>& lines) {
    return Json(Json::Array(lines.begin(), lines.end()));
}

int count(const Placement& placement, Role role) {
    return static_cast<int>(
        std::count_if(placement.replicas.begin(), placement.replicas.end(),
                      [role](const AttentionReplica& replica) { return replica.role == role; }));
}

std::string counted(int64_t number, const char* one, const char* many) {
    return fmt::format("{} {}", number, number == 1 ? one : many);
}

std::string names(const std::vector<std::string>& nodes) {
    return fmt::format("{}", fmt::join(nodes, ","));
}

}  // namespace

std::string attention_group_line(const Config& config) {
    return fmt::format("[AE-SEP] Attention group: tp={}, cp={}, nodes={}",
                       config.parallel.attention_tp, config.parallel.attention_cp,
                       names(config.ae_separation.prefill_nodes));
}

std::string expert_group_line(const Config& config) {
    return fmt::format("[AE-SEP] Expert group: ep={}, dp={}, nodes={}", config.parallel.expert_ep,
                       config.parallel.expert_dp, names(config.ae_separation.decode_nodes));
}

std::string kv_transfer_line(const Config& config) {
    if (decode_is_unified(config)) {
        return "[AE-SEP] KV transfer: none, one unified attention role runs prefill and decode";
    }
    return fmt::format("[AE-SEP] KV transfer backend: {}, mode: {}",
                       name_of(config.ae_separation.kv_backend),
                       name_of(config.ae_separation.kv_transfer));
}

std::string disabled_line(const Config& config, const Placement& placement) {
    return fmt::format(
        "[AE-SEP] AE separation is disabled: attention and experts share {} ({}, {}).",
        counted(config.cluster.nodes * config.cluster.gpus_per_node, "card", "cards"),
        counted(std::ssize(placement.replicas), "replica", "replicas"),
        counted(placement.expert_dp(), "expert copy", "expert copies"));
}

std::string replicas_line(const Placement& placement) {
    std::string out = "replicas:";
    for (Role role : {Role::kPrefill, Role::kDecode, Role::kUnified}) {
        const int number = count(placement, role);
        if (number == 0) continue;
        const auto replica = std::find_if(placement.replicas.begin(), placement.replicas.end(),
                                          [role](const auto& r) { return r.role == role; });
        out += fmt::format(" {} {} (tp {}, cp {}),", number, name_of(role), replica->tp_size,
                           replica->cp_size);
    }
    return out + fmt::format(" {} (ep {})",
                             counted(placement.expert_dp(), "expert copy", "expert copies"),
                             placement.expert_ep());
}

std::string placement_table(const LoadedConfig& loaded) {
    std::vector<std::vector<std::string>> rows = {
        {"node", "process", "role", "ranks", "cards", "memory"}};
    const Placement& placement = loaded.placement;
    for (int node = 0; node < static_cast<int>(placement.nodes.size()); ++node) {
        for (Role role : {Role::kPrefill, Role::kDecode, Role::kUnified, Role::kExpert}) {
            std::vector<int> ranks, cards;
            int64_t most = 0;
            for (const RankPlace& place :
                 role == Role::kExpert ? placement.experts : placement.attention) {
                if (place.node != node || place.role != role) continue;
                ranks.push_back(place.rank);
                cards.push_back(place.card);
                if (const auto* card = memory_of(loaded.memory, node, place.card)) {
                    most = std::max(most, card->used());
                }
            }
            if (ranks.empty()) continue;
            const std::string process =
                loaded.config.in_process ? "this process" : "host " + placement.nodes[node].name;
            rows.push_back({placement.nodes[node].name, process, name_of(role), ranges(ranks),
                            ranges(cards), format_bytes(most) + " a card"});
        }
    }
    return table(rows);
}

std::string memory_table(const LoadedConfig& loaded) {
    std::vector<std::vector<std::string>> rows = {
        {"node", "cards", "attention weights", "expert weights", "KV",
         "KV evicted", "activations", "CUDA", "sum"}};
    const auto& cards = loaded.memory.cards;
    const auto same = [](const CardMemory& a, const CardMemory& b) {
        return a.node == b.node && a.attention_weights == b.attention_weights &&
               a.expert_weights == b.expert_weights && a.kv == b.kv && a.host_kv == b.host_kv &&
               a.activations == b.activations && a.runtime == b.runtime;
    };
    for (size_t i = 0; i < cards.size();) {
        std::vector<int> alike;
        const CardMemory& first = cards[i];
        while (i < cards.size() && same(cards[i], first)) alike.push_back(cards[i++].card);
        rows.push_back({loaded.config.node_name(first.node), ranges(alike),
                        format_bytes(first.attention_weights), format_bytes(first.expert_weights),
                        format_bytes(first.kv), format_bytes(first.host_kv),
                        format_bytes(first.activations), format_bytes(first.runtime),
                        format_bytes(first.used())});
    }
    return fmt::format("memory a card, of {}\n{}", format_bytes(loaded.memory.card_memory),
                       table(rows));
}

Status check_free_memory(const LoadedConfig& loaded, int node, int card, int64_t free_memory) {
    const CardMemory* planned = memory_of(loaded.memory, node, card);
    if (planned == nullptr) return {};
    const int64_t wanted = planned->used() - planned->runtime;
    if (wanted <= free_memory) return {};
    return error("not enough memory: {} card {} has {} free, as other processes hold the rest; "
                 "expected {}, as planned:\n{}"
                 "lower mem_fraction_static or max_total_tokens, or end what else uses the card",
                 loaded.config.node_name(node), card, format_bytes(free_memory),
                 format_bytes(wanted), memory_table(loaded));
}

std::string sizes_line(const LoadedConfig& loaded) {
    int running = 0;
    for (int replica : loaded.placement.decode_replicas()) {
        running += loaded.memory.replicas[replica].max_running_requests;
    }
    return fmt::format(
        "max_total_num_tokens={}, chunked_prefill_size={}, max_running_requests={}, context_len={}",
        loaded.memory.max_total_num_tokens, loaded.config.settings.chunked_prefill_size, running,
        loaded.config.settings.context_length.value_or(0));
}

std::string kv_lines(const LoadedConfig& loaded) {
    const auto& replicas = loaded.placement.replicas;
    const auto& sizings = loaded.memory.replicas;
    std::string lines;
    for (size_t i = 0; i < replicas.size();) {
        std::vector<int> alike;
        const size_t first = i;
        while (i < replicas.size() && replicas[i].role == replicas[first].role &&
               sizings[i].max_total_num_tokens == sizings[first].max_total_num_tokens &&
               sizings[i].reason == sizings[first].reason) {
            alike.push_back(replicas[i++].dp_rank);
        }
        lines += fmt::format("{}KV cache of {} replica {}: {} tokens in {} blocks ({})",
                             lines.empty() ? "" : "\n", name_of(replicas[first].role), ranges(alike),
                             sizings[first].max_total_num_tokens, sizings[first].num_blocks,
                             sizings[first].reason);
    }
    return lines;
}

Json placement_to_json(const Placement& placement) {
    Json out = Json::object();
    out.set("separated", placement.separated);
    Json nodes = Json::array();
    for (const NodePlace& node : placement.nodes) {
        nodes.push_back(Json::object()
                            .set("name", node.name)
                            .set("attention_ranks", ints(node.attention_ranks))
                            .set("expert_ranks", ints(node.expert_ranks)));
    }
    Json replicas = Json::array();
    for (const AttentionReplica& replica : placement.replicas) {
        replicas.push_back(Json::object()
                               .set("replica", replica.replica)
                               .set("role", name_of(replica.role))
                               .set("node", placement.nodes[replica.node].name)
                               .set("tp", replica.tp_size)
                               .set("cp", replica.cp_size)
                               .set("ranks", ints(replica.ranks))
                               .set("expert_copy", replica.expert_copy));
    }
    Json copies = Json::array();
    for (const ExpertCopy& copy : placement.copies) {
        copies.push_back(Json::object().set("ranks", ints(copy.ranks)));
    }
    out.set("nodes", std::move(nodes));
    out.set("replicas", std::move(replicas));
    out.set("expert_copies", std::move(copies));
    return out;
}

Json memory_to_json(const MemoryPlan& memory) {
    Json cards = Json::array();
    for (const CardMemory& card : memory.cards) {
        cards.push_back(Json::object()
                            .set("node", card.node)
                            .set("card", card.card)
                            .set("attention_weights", card.attention_weights)
                            .set("expert_weights", card.expert_weights)
                            .set("kv", card.kv)
                            .set("host_kv", card.host_kv)
                            .set("activations", card.activations)
                            .set("runtime", card.runtime));
    }
    return Json::object()
        .set("card_memory", memory.card_memory)
        .set("max_total_num_tokens", memory.max_total_num_tokens)
        .set("reason", memory.reason)
        .set("cards", std::move(cards));
}

Json loaded_to_json(const LoadedConfig& loaded) {
    const Diagnostics& diagnostics = loaded.diagnostics;
    Json out = Json::object();
    out.set("ok", diagnostics.ok());
    out.set("errors", strings(diagnostics.errors));
    out.set("warnings", strings(diagnostics.warnings));
    out.set("notes", strings(diagnostics.notes));
    out.set("config", config_to_json(loaded.config));
    if (!diagnostics.ok()) return out;
    out.set("placement", placement_to_json(loaded.placement));
    out.set("memory", memory_to_json(loaded.memory));
    return out;
}

}  // namespace aerie
