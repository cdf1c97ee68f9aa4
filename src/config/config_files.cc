#include "config/config_files.h"

#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <optional>
#include <sstream>

#include "config/paste_repair.h"
#include "config/paste_text.h"

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

// Repairs one file may need before reading it is given up.
constexpr int kMaxRepairs = 100;

std::vector<std::string> split_lines(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

std::string join_lines(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += line + '\n';
    return text;
}

struct SyntaxError {
    int line = 0, column = 0;
    std::string what;
};

// Tells the user, and replaces the broken line where it is clear what was meant. False: it is not.
bool report_and_repair(const std::string& path, const SyntaxError& error,
                       std::optional<Repair> (*repair)(const std::vector<std::string>&, int),
                       std::vector<std::string>& lines, std::vector<std::string>& errors) {
    const std::string at = fmt::format("{}: line {} column {}", path, error.line, error.column);
    const auto fix = repair(lines, error.line);
    if (!fix) {
        errors.push_back(fmt::format("{}: {}", at, error.what));
        return false;
    }
    std::string& line = lines[fix->line - 1];
    const std::string where = fix->line == error.line ? "" : fmt::format(" in line {}", fix->line);
    const std::string meant = trimmed(fix->fixed).empty()
                                  ? "expected no such line"
                                  : fmt::format("probably meant `{}`", trimmed(fix->fixed));
    errors.push_back(
        fmt::format("{}: found `{}`{}, {} ({})", at, trimmed(line), where, meant, fix->why));
    line = fix->fixed;
    return true;
}

std::vector<int> lines_of_json_key(std::string_view text, const std::string& name) {
    std::vector<int> lines;
    const std::string quoted = '"' + name + '"';
    for (size_t at = text.find(quoted); at != text.npos; at = text.find(quoted, at + 1)) {
        const size_t next = text.find_first_not_of(" \t\r\n", at + quoted.size());
        if (next == text.npos || text[next] != ':') continue;
        lines.push_back(1 + static_cast<int>(std::count(text.begin(), text.begin() + at, '\n')));
    }
    return lines;
}

std::vector<GivenValue> values_of(const toml::table& root) {
    std::vector<GivenValue> given;
    for (const auto& [section, node] : root) {
        const int line = static_cast<int>(section.source().begin.line);
        if (const auto* table = node.as_table()) {
            given.push_back({std::string(section.str()), "", Json(), line});
            for (const auto& [key, value] : *table) {
                given.push_back({std::string(section.str()), std::string(key.str()), to_json(value),
                                 static_cast<int>(key.source().begin.line)});
            }
        } else {
            given.push_back({"", std::string(section.str()), to_json(node), line});
        }
    }
    std::stable_sort(given.begin(), given.end(),
                     [](const auto& a, const auto& b) { return a.line < b.line; });
    return given;
}

SyntaxError json_error(const std::string& message) {
    SyntaxError error{.what = message};
    if (std::sscanf(message.c_str(), "line %d column %d", &error.line, &error.column) == 2) {
        const size_t colon = message.find(": ");
        if (colon != message.npos) error.what = message.substr(colon + 2);
    }
    return error;
}

// `"tp_size": 4` without braces around the file.
bool add_braces(const std::string& path, std::vector<std::string>& lines,
                std::vector<std::string>& errors) {
    for (std::string& line : lines) {
        const std::string_view text = trimmed(line);
        if (text.empty()) continue;
        if (text[0] != '"' && !std::isalpha(static_cast<unsigned char>(text[0]))) return false;
        errors.push_back(
            fmt::format("{}: found no braces, expected {{ before the first setting and "
                        "}} after the last",
                        path));
        line = '{' + line;
        lines.back() += '}';
        return true;
    }
    return false;
}

GivenFile settings_of(const std::string& path, const Json& json, const std::string& text,
                      std::vector<std::string>& errors) {
    if (!json.is_object()) {
        errors.push_back(
            fmt::format("{}: found {}, expected an object {{…}}", path, json.type_name()));
        return {.values = {}, .readable = false};
    }
    GivenFile file;
    for (const auto& [name, value] : json.as_object()) {
        const std::vector<int> at = lines_of_json_key(text, name);
        if (at.size() > 1) {
            errors.push_back(
                fmt::format("{}: {} is given in line {} and again in line {}; expected "
                            "it once",
                            path, name, at[0], at[1]));
        }
        file.values.push_back({"", name, value, at.empty() ? 0 : at.back()});
    }
    return file;
}

}  // namespace

GivenFile parse_toml(const std::string& path, const std::string& text,
                     std::vector<std::string>& errors) {
    std::vector<std::string> lines = split_lines(text);
    for (int i = 0; i <= kMaxRepairs; ++i) {
        try {
            return {.values = values_of(toml::parse(join_lines(lines), path))};
        } catch (const toml::parse_error& e) {
            const SyntaxError error{static_cast<int>(e.source().begin.line),
                                    static_cast<int>(e.source().begin.column),
                                    std::string(e.description())};
            if (!report_and_repair(path, error, repair_toml, lines, errors)) break;
        }
    }
    return {.values = {}, .readable = false};
}

GivenFile parse_json_settings(const std::string& path, const std::string& text,
                              std::vector<std::string>& errors) {
    std::vector<std::string> lines = split_lines(text);
    for (int i = 0; i <= kMaxRepairs; ++i) {
        auto json = Json::parse(join_lines(lines));
        if (json) return settings_of(path, *json, join_lines(lines), errors);
        if (i == 0 && add_braces(path, lines, errors)) continue;
        if (!report_and_repair(path, json_error(json.message()), repair_json, lines, errors)) break;
    }
    return {.values = {}, .readable = false};
}

}  // namespace aerie
