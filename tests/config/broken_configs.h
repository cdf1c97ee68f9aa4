// Test data: a valid pair of files, and a table of ways to break it with what must be said about
// each. The unit test loads them, tests/config runs the binary on them.
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace aerie {

// Four nodes of eight cards, separated, on the demo model.
inline constexpr const char* kGoodSettings = R"({
  "model_path": "models/demo",
  "tp_size": 4,
  "cp_size": 2,
  "ep_size": 8,
  "dp_size": 2,
  "enable_ae_separation": true,
  "page_size": 64,
  "chunked_prefill_size": 2048
}
)";

inline constexpr const char* kGoodToml = R"([cluster]
name = "test"
nodes = 4
gpus_per_node = 8
network = "tcp"

[parallel]
attention_tp = 4
attention_cp = 2
expert_ep = 8
expert_dp = 2
global_dp = 2

[ae_separation]
enabled = true
prefill_nodes = ["node-0", "node-1"]
decode_nodes = ["node-2", "node-3"]
comm_backend = "ucx"
kv_transfer = "active"

[model]
path = "models/demo"
)";

// `from` in the good file becomes `to`; an empty `from` replaces the whole file.
struct Edit {
    bool toml;
    std::string from, to;
};
inline Edit json_edit(std::string from, std::string to) { return {false, from, to}; }
inline Edit toml_edit(std::string from, std::string to) { return {true, from, to}; }

struct BrokenConfig {
    const char* name;
    std::vector<Edit> edits;
    std::vector<std::string> arguments;  // after --config and --ae-config
    std::vector<std::string> messages;   // each stands in one of the errors
    int num_errors;                      // exactly
};

// What GoogleTest prints for a case.
inline void PrintTo(const BrokenConfig& broken, std::ostream* out) { *out << broken.name; }

inline std::string edited(std::string text, const std::vector<Edit>& edits, bool toml) {
    for (const Edit& edit : edits) {
        if (edit.toml != toml) continue;
        if (edit.from.empty()) {
            text = edit.to;
        } else if (const size_t at = text.find(edit.from); at != text.npos) {
            text.replace(at, edit.from.size(), edit.to);
        } else {
            text = "the edit's `from` is not in the good file: " + edit.from;
        }
    }
    return text;
}

std::vector<BrokenConfig> broken_sizes();   // broken_sizes.cc: the cross-checks of sizes and nodes
std::vector<BrokenConfig> broken_values();  // broken_values.cc: keys, values, model, features
std::vector<BrokenConfig> broken_pastes();  // broken_pastes.cc: text copied from elsewhere

inline std::vector<BrokenConfig> broken_configs() {
    std::vector<BrokenConfig> all = broken_sizes();
    for (auto* more : {broken_values, broken_pastes}) {
        for (BrokenConfig& one : more()) all.push_back(std::move(one));
    }
    return all;
}

}  // namespace aerie
