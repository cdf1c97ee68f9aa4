// What every cross-check gets: the configuration, where its values came from, and where to
// complain. Only the *_checks.cc files include this.
#pragma once

#include <string>
#include <vector>

#include "config/checks.h"

namespace aerie {

struct CheckContext {
    const Config& config;
    const Sources& sources;
    const ModelConfig* model;  // null where config.json could not be read
    Diagnostics& out;

    template <typename... Args>
    void fail(fmt::format_string<Args...> format, Args&&... args) {
        out.errors.push_back(fmt::format(format, std::forward<Args>(args)...));
    }
    template <typename... Args>
    void warn(fmt::format_string<Args...> format, Args&&... args) {
        out.warnings.push_back(fmt::format(format, std::forward<Args>(args)...));
    }
    // "settings.json line 3: tp_size = 8"
    std::string say(const char* section, const char* name) const {
        return sources.describe(config, section, name);
    }
    int64_t cards(const std::vector<std::string>& nodes) const {
        return std::ssize(nodes) * int64_t{config.cluster.gpus_per_node};
    }
    const AeSeparation& ae() const { return config.ae_separation; }
    const Parallel& parallel() const { return config.parallel; }
    int decode_tp() const { return ae().decode_tp.value_or(parallel().attention_tp); }
    int decode_cp() const { return ae().decode_cp.value_or(parallel().attention_cp); }
};

bool check_nodes(CheckContext& c);  // false: the lists of nodes cannot be used
void check_pairs(CheckContext& c);
void check_sizes(CheckContext& c, bool nodes_ok);
void check_model_fits(CheckContext& c);
void check_values(CheckContext& c);

}  // namespace aerie
