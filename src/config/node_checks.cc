#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "config/check_context.h"
#include "config/nearest.h"

namespace aerie {
namespace {

std::string join(const std::vector<std::string>& names) {
    return fmt::format("{}", fmt::join(names, ","));
}

bool is_node(const CheckContext& c, const std::string& name) {
    for (int node = 0; node < c.config.cluster.nodes; ++node) {
        if (c.config.node_name(node) == name) return true;
    }
    return false;
}
void unknown_node(CheckContext& c, const char* key, const std::string& name) {
    std::vector<std::string> known;
    for (int node = 0; node < c.config.cluster.nodes; ++node) {
        known.push_back(c.config.node_name(node));
    }
    c.fail("unknown node: {}: {}: found \"{}\", expected one of node-0 … node-{}{}",
           c.sources.toml_file, key, name, c.config.cluster.nodes - 1, did_you_mean(name, known));
}

// The fabric numbers 1,020 listeners of each kind (comm/port_numbers.h).
void check_cluster_size(CheckContext& c) {
    constexpr int64_t kMaxCards = 1020;
    const Cluster& cluster = c.config.cluster;
    const int64_t cards = int64_t{cluster.nodes} * cluster.gpus_per_node;
    if (cards <= kMaxCards) return;
    c.fail("bad value: {} × {} is {} cards; expected at most {}", c.say("cluster", "nodes"),
           c.say("cluster", "gpus_per_node"), cards, kMaxCards);
}

void check_hosts(CheckContext& c) {
    const auto& hosts = c.config.cluster.hosts;
    if (hosts.empty()) return;
    if (std::ssize(hosts) != c.config.cluster.nodes) {
        c.fail("bad value: {} but [cluster] hosts names {} nodes; expected one host a node",
               c.say("cluster", "nodes"), hosts.size());
    }
    for (const auto& [name, address] : hosts) {
        if (!is_node(c, name)) unknown_node(c, "hosts", name);
        if (address.empty())
            c.fail("bad value: {}: [cluster] hosts: {} has an empty address", c.sources.toml_file,
                   name);
    }
}

bool check_list(CheckContext& c, const char* key, const std::vector<std::string>& names) {
    bool ok = true;
    std::set<std::string> seen;
    for (const std::string& name : names) {
        if (!is_node(c, name)) {
            unknown_node(c, key, name);
            ok = false;
        } else if (!seen.insert(name).second) {
            c.fail("bad value: {}: {} is there twice; expected each node once",
                   c.say("ae_separation", key), name);
            ok = false;
        }
    }
    return ok;
}

void overlap(CheckContext& c, const char* left, const std::vector<std::string>& a,
             const char* right, const std::vector<std::string>& b, const char* why) {
    std::vector<std::string> both;
    for (const std::string& name : a) {
        if (std::find(b.begin(), b.end(), name) != b.end()) both.push_back(name);
    }
    if (!both.empty()) {
        c.fail("{} and {} overlap: {} in both {} and {}; {}", left, right, join(both),
               c.say("ae_separation", left), c.say("ae_separation", right), why);
    }
}

void warn_of_idle_nodes(CheckContext& c) {
    for (int node = 0; node < c.config.cluster.nodes; ++node) {
        const std::string name = c.config.node_name(node);
        bool used = false;
        for (const auto* list :
             {&c.ae().prefill_nodes, &c.ae().decode_nodes, &c.ae().decode_attention_nodes}) {
            used |= std::find(list->begin(), list->end(), name) != list->end();
        }
        if (!used) {
            c.warn(
                "{} has no role: it is in neither prefill_nodes, decode_nodes nor "
                "decode_attention_nodes of {}; its {} cards stay idle",
                name, c.sources.toml_file, c.config.cluster.gpus_per_node);
        }
    }
}

}  // namespace

bool check_nodes(CheckContext& c) {
    check_cluster_size(c);
    check_hosts(c);
    bool ok = check_list(c, "prefill_nodes", c.ae().prefill_nodes);
    ok &= check_list(c, "decode_nodes", c.ae().decode_nodes);
    ok &= check_list(c, "decode_attention_nodes", c.ae().decode_attention_nodes);
    if (!c.config.separated()) return ok;
    const size_t before = c.out.errors.size();
    for (const auto& [key, names] : {std::pair("prefill_nodes", &c.ae().prefill_nodes),
                                     std::pair("decode_nodes", &c.ae().decode_nodes)}) {
        if (names->empty()) {
            c.fail(
                "prefill_nodes and decode_nodes overlap or are empty: {}; expected at least one "
                "node "
                "each: separation would fall back to one group and move no KV",
                c.say("ae_separation", key));
        }
    }
    overlap(c, "prefill_nodes", c.ae().prefill_nodes, "decode_nodes", c.ae().decode_nodes,
            "expected lists without a common node: separation would fall back to one group and "
            "move no KV");
    overlap(c, "decode_attention_nodes", c.ae().decode_attention_nodes, "decode_nodes",
            c.ae().decode_nodes,
            "expected lists without a common node; leave decode_attention_nodes out to let "
            "decode attention and experts share cards");
    if (!decode_is_unified(c.config)) {
        overlap(c, "prefill_nodes", c.ae().prefill_nodes, "decode_attention_nodes",
                c.ae().decode_attention_nodes,
                "expected the same nodes (one unified attention role) or none in common");
    }
    ok &= c.out.errors.size() == before;
    if (ok) warn_of_idle_nodes(c);
    return ok;
}

}  // namespace aerie
