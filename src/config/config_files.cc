#include "config/config_files.h"

#include <toml++/toml.h>

#include <algorithm>

namespace aerie {
namespace {

Json to_json(const toml::node& node) {
    if (const auto* value = node.as_boolean()) return Json(value->get());
    if (const auto* value = node.as_integer()) return Json(value->get());
    if (const auto* value = node.as_floating_point()) return Json(value->get());
    if (const auto* value = node.as_string()) return Json(value->get());
    if (const auto* array = node.as_array()) {
        Json list = Json::array();
        for (const auto& item : *array) list.push_back(to_json(item));
        return list;
    }
    if (const auto* table = node.as_table()) {
        Json object = Json::object();
        for (const auto& [key, item] : *table) object.set(std::string(key.str()), to_json(item));
        return object;
    }
    return Json("(a date or time)");
}

int line_of_json_key(std::string_view text, const std::string& name) {
    const std::string quoted = '"' + name + '"';
    for (size_t at = text.find(quoted); at != text.npos; at = text.find(quoted, at + 1)) {
        const size_t next = text.find_first_not_of(" \t\r\n", at + quoted.size());
        if (next == text.npos || text[next] != ':') continue;
        return 1 + static_cast<int>(std::count(text.begin(), text.begin() + at, '\n'));
    }
    return 0;
}

}  // namespace

std::vector<GivenValue> parse_toml(const std::string& path, const std::string& text,
                                   std::vector<std::string>& errors) {
    toml::table root;
    try {
        root = toml::parse(text, path);
    } catch (const toml::parse_error& e) {
        const auto at = e.source().begin;
        errors.push_back(
            fmt::format("{}: line {} column {}: {}", path, at.line, at.column, e.description()));
        return {};
    }
    std::vector<GivenValue> given;
    for (const auto& [section, node] : root) {
        const int line = static_cast<int>(section.source().begin.line);
        if (const auto* table = node.as_table()) {
            for (const auto& [key, value] : *table) {
                given.push_back({std::string(section.str()), std::string(key.str()), to_json(value),
                                 static_cast<int>(key.source().begin.line)});
            }
            if (table->empty()) given.push_back({std::string(section.str()), "", Json(), line});
        } else {
            given.push_back({"", std::string(section.str()), to_json(node), line});
        }
    }
    std::stable_sort(given.begin(), given.end(),
                     [](const auto& a, const auto& b) { return a.line < b.line; });
    return given;
}

std::vector<GivenValue> parse_json_settings(const std::string& path, const std::string& text,
                                            std::vector<std::string>& errors) {
    auto json = Json::parse(text);
    if (!json) {
        errors.push_back(fmt::format("{}: {}", path, json.message()));
        return {};
    }
    if (!json->is_object()) {
        errors.push_back(
            fmt::format("{}: found {}, expected an object {{…}}", path, json->type_name()));
        return {};
    }
    std::vector<GivenValue> given;
    for (auto& [name, value] : json->as_object()) {
        given.push_back({"", name, value, line_of_json_key(text, name)});
    }
    return given;
}

}  // namespace aerie
