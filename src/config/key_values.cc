#include "config/key_values.h"

#include <algorithm>

#include "base/hash.h"

namespace aerie {
namespace {

template <size_t n>
const char* pick(const char* const (&words)[n], int index) {
    return index < static_cast<int>(n) ? words[index] : nullptr;
}

}  // namespace

// Null beyond the last value: that is how words_of() finds the end.
#define NAMES(Enum, ...)                                       \
    const char* name_of(Enum value) {                          \
        static constexpr const char* kWords[] = {__VA_ARGS__}; \
        return pick(kWords, static_cast<int>(value));          \
    }
NAMES(Network, "rdma", "tcp", "local")
NAMES(CommBackend, "auto", "nccl", "ucx", "gloo")
NAMES(KvTransfer, "active", "passive", "active_passive")
NAMES(ExchangeDtype, "auto", "fp8")
NAMES(ComputeDtype, "bfloat16", "float32")
NAMES(AttentionBackend, "auto", "flashinfer", "cpu")
NAMES(ExpertBackend, "auto", "cutlass", "deep_gemm", "cpu")
NAMES(KvCacheDtype, "auto", "bf16", "fp8_e4m3")
NAMES(SchedulePolicy, "fcfs", "lpm", "dfs-weight", "lof", "random", "priority")
NAMES(LoadFormat, "auto", "safetensors", "dummy")
NAMES(DeviceChoice, "auto", "cpu", "cuda")
NAMES(LogLevel, "debug", "info", "warning", "error")
#undef NAMES

std::string ConfigKey::label() const {
    return in_settings() ? name : fmt::format("[{}] {}", section, name);
}

std::string ConfigKey::expected() const {
    const std::string word = type;
    std::string text;
    if (word == "choice") {
        text = "one of ";
        for (size_t i = 0; i < choices.size(); ++i)
            text += (i ? ", " : "") + std::string(choices[i]);
    } else if (word == "int" || word == "float") {
        text = word == "int" ? "a whole number" : "a number";
        text += max < 1e15 ? fmt::format(" from {} to {}", min, max) : fmt::format(" from {}", min);
    } else if (word == "bool") {
        text = "true or false";
    } else if (word == "string") {
        text = "a string";
    } else if (word == "list") {
        text = "a list of node names such as [\"node-0\", \"node-1\"]";
    } else {
        text = "a table such as { node-0 = \"10.0.0.1\" }";
    }
    return std::string(unset) == "auto" ? text + " or \"auto\"" : text;
}

Error wrong_value(const ConfigKey& key, const Json& value) {
    std::string found = key.secret ? value.type_name() : value.dump();
    return error("found {}, expected {}", found, key.expected());
}

Status read_value(const ConfigKey& key, const Json& value, std::vector<std::string>& into) {
    if (!value.is_array()) return wrong_value(key, value);
    std::vector<std::string> list;
    for (const Json& item : value.as_array()) {
        if (!item.is_string()) return wrong_value(key, value);
        list.push_back(item.as_string());
    }
    into = std::move(list);
    return {};
}

Status read_value(const ConfigKey& key, const Json& value,
                  std::vector<std::pair<std::string, std::string>>& into) {
    if (!value.is_object()) return wrong_value(key, value);
    std::vector<std::pair<std::string, std::string>> table;
    for (const auto& [name, address] : value.as_object()) {
        if (!address.is_string()) return wrong_value(key, value);
        table.emplace_back(name, address.as_string());
    }
    into = std::move(table);
    return {};
}

Json write_value(const std::vector<std::string>& value) {
    if (value.empty()) return Json();
    Json list = Json::array();
    for (const std::string& item : value) list.push_back(item);
    return list;
}

Json write_value(const std::vector<std::pair<std::string, std::string>>& value) {
    if (value.empty()) return Json();
    Json table = Json::object();
    for (const auto& [name, address] : value) table.set(name, address);
    return table;
}

}  // namespace aerie
