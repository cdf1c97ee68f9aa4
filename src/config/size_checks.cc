#include <fmt/format.h>

#include <numeric>

#include "config/check_context.h"

namespace aerie {
namespace {

constexpr const char* kSizes = "parallel group size mismatch";

std::string join(const std::vector<std::string>& names) {
    return fmt::format("{}", fmt::join(names, ","));
}

// "1, 2, 4, 8": the divisors of n, the values that would fit.
std::string divisors(int64_t n) {
    std::string out;
    for (int64_t i = 1; i <= n && i <= 1024; ++i) {
        if (n % i == 0) out += fmt::format("{}{}", out.empty() ? "" : ", ", i);
    }
    return out;
}

// The nodes of decode attention.
const std::vector<std::string>& d_nodes(const CheckContext& c) {
    return c.ae().decode_attention_nodes.empty() ? c.ae().decode_nodes
                                                 : c.ae().decode_attention_nodes;
}

std::string sizes_that_fit(const CheckContext& c, int64_t p_cards) {
    const Parallel& p = c.config.parallel;
    const int64_t size = int64_t{p.attention_tp} * p.attention_cp;
    if (p_cards % size == 0) {
        return fmt::format("expected global_dp = {} in {} and dp_size = {} in {}", p_cards / size,
                           c.sources.toml_file, p_cards / size, c.sources.settings_file);
    }
    return fmt::format("expected attention_tp × attention_cp out of {}",
                       divisors(std::gcd(p_cards, int64_t{c.config.cluster.gpus_per_node})));
}

void check_separated_sizes(CheckContext& c) {
    const Parallel& p = c.config.parallel;
    const int64_t product = int64_t{p.attention_tp} * p.attention_cp * p.global_dp;
    const int64_t p_cards = c.cards(c.ae().prefill_nodes);
    if (product != p_cards) {
        c.fail(
            "{}: {}: attention_tp × attention_cp × global_dp = {} × {} × {} = {}, but "
            "prefill_nodes {} have {} cards; {}",
            kSizes, c.sources.toml_file, p.attention_tp, p.attention_cp, p.global_dp, product,
            join(c.ae().prefill_nodes), p_cards, sizes_that_fit(c, p_cards));
    }
    const int64_t e_cards = c.cards(c.ae().decode_nodes);
    const int64_t experts = int64_t{p.expert_ep} * p.expert_dp;
    if (experts != e_cards) {
        std::string fit;
        if (e_cards % p.expert_ep == 0) {
            fit = fmt::format("expected expert_dp = {} with expert_ep = {}, or ",
                              e_cards / p.expert_ep, p.expert_ep);
        }
        c.fail(
            "{}: {}: expert_ep × expert_dp = {} × {} = {}, but decode_nodes {} have {} cards; "
            "{}expert_ep (with ep_size in {}) out of {}",
            kSizes, c.sources.toml_file, p.expert_ep, p.expert_dp, experts,
            join(c.ae().decode_nodes), e_cards, fit, c.sources.settings_file, divisors(e_cards));
    }
    const int64_t tp = c.ae().decode_tp.value_or(p.attention_tp);
    const int64_t cp = c.ae().decode_cp.value_or(p.attention_cp);
    if (decode_is_unified(c.config)) {
        if (tp != p.attention_tp || cp != p.attention_cp) {
            c.fail(
                "{}: {}: decode_tp × decode_cp = {} × {}, but decode_attention_nodes equals "
                "prefill_nodes, so that one unified role runs with attention_tp × "
                "attention_cp = {} × {}; expected the same sizes, or other nodes",
                kSizes, c.sources.toml_file, tp, cp, p.attention_tp, p.attention_cp);
        }
    } else if (c.cards(d_nodes(c)) % (tp * cp) != 0) {
        c.fail(
            "{}: {}: decode attention has {} cards on {}, not divisible by decode_tp × "
            "decode_cp = {} × {} = {}; expected a product out of {}",
            kSizes, c.sources.toml_file, c.cards(d_nodes(c)), join(d_nodes(c)), tp, cp, tp * cp,
            divisors(c.cards(d_nodes(c))));
    }
}

void check_colocated_sizes(CheckContext& c) {
    const Parallel& p = c.config.parallel;
    const int64_t all = int64_t{c.config.cluster.nodes} * c.config.cluster.gpus_per_node;
    const int64_t size = int64_t{p.attention_tp} * p.attention_cp;
    if (all % size != 0) {
        c.fail(
            "{}: {}: all {} cards are not divisible by attention_tp × attention_cp = {} × {} = "
            "{}; expected a product out of {}",
            kSizes, c.sources.toml_file, all, p.attention_tp, p.attention_cp, size, divisors(all));
    }
    if (all % p.expert_ep != 0) {
        c.fail("{}: all {} cards are not divisible by {}; expected {} out of {}", kSizes, all,
               c.say("", "ep_size"), "ep_size and expert_ep", divisors(all));
    }
}

void check_replica_in_node(CheckContext& c) {
    const int per_node = c.config.cluster.gpus_per_node;
    const auto check = [&](const char* tp_key, int tp, const char* cp_key, int cp) {
        if (per_node % (int64_t{tp} * cp) == 0) return;
        c.fail(
            "{}: {}: {} × {} = {} × {} = {} does not divide [cluster] gpus_per_node = {} (a "
            "replica stays in a node); expected a product out of {}",
            kSizes, c.sources.toml_file, tp_key, cp_key, tp, cp, int64_t{tp} * cp, per_node,
            divisors(per_node));
    };
    const Parallel& p = c.config.parallel;
    check("attention_tp", p.attention_tp, "attention_cp", p.attention_cp);
    const int tp = c.ae().decode_tp.value_or(p.attention_tp);
    const int cp = c.ae().decode_cp.value_or(p.attention_cp);
    if (c.config.separated() && (tp != p.attention_tp || cp != p.attention_cp)) {
        check("decode_tp", tp, "decode_cp", cp);
    }
}

}  // namespace

void check_pairs(CheckContext& c) {
    if (!c.sources.has_toml) {
        if (c.config.settings.enable_ae_separation) {
            c.fail(
                "ae separation switch mismatch: {}, but no --ae-config is given; expected a "
                "config.toml that names the nodes, or enable_ae_separation = false",
                c.say("", "enable_ae_separation"));
        }
        return;
    }
    const struct {
        const char *setting, *toml;
        int left, right;
    } pairs[] = {
        {"tp_size", "attention_tp", c.config.settings.tp_size, c.config.parallel.attention_tp},
        {"cp_size", "attention_cp", c.config.settings.cp_size, c.config.parallel.attention_cp},
        {"ep_size", "expert_ep", c.config.settings.ep_size, c.config.parallel.expert_ep},
        {"dp_size", "global_dp", c.config.settings.dp_size, c.config.parallel.global_dp},
    };
    for (const auto& pair : pairs) {
        if (pair.left == pair.right || c.sources.bad("", pair.setting) ||
            c.sources.bad("parallel", pair.toml)) {
            continue;
        }
        c.fail(
            "{}: {} but {}; expected the same number in both (in SGLang tp_size is the world "
            "size and ep_size and dp_size divide it; here the sizes multiply)",
            kSizes, c.say("", pair.setting), c.say("parallel", pair.toml));
    }
    if (c.config.settings.enable_ae_separation != c.ae().enabled &&
        !c.sources.bad("", "enable_ae_separation") && !c.sources.bad("ae_separation", "enabled")) {
        c.fail("ae separation switch mismatch: {} but {}; expected both true or both false",
               c.say("", "enable_ae_separation"), c.say("ae_separation", "enabled"));
    }
}

void check_sizes(CheckContext& c, bool nodes_ok) {
    for (const char* section : {"cluster", "parallel", "ae_separation"}) {
        if (c.sources.any_bad(section)) return;
    }
    if (!c.config.separated()) {
        check_colocated_sizes(c);
    } else if (nodes_ok) {
        check_separated_sizes(c);
    }
    check_replica_in_node(c);
}

}  // namespace aerie
