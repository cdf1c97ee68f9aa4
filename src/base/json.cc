#include "base/json.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace aerie {
namespace {

// Builds a Json from nlohmann's event stream, so that order and number types are kept.
class Builder {
  public:
    Builder(int max_depth, Json::RepeatedKey repeated)
        : max_depth_(max_depth), repeated_(repeated) {}

    bool null() { return add(Json()); }
    bool boolean(bool value) { return add(Json(value)); }
    bool number_integer(int64_t value) { return add(Json(value)); }
    bool number_unsigned(uint64_t value) {
        // Beyond int64 only a float can hold it.
        if (value > static_cast<uint64_t>(INT64_MAX)) return add(Json(static_cast<double>(value)));
        return add(Json(static_cast<int64_t>(value)));
    }
    bool number_float(double value, const std::string&) { return add(Json(value)); }
    bool string(std::string& value) { return add(Json(std::move(value))); }
    bool binary(std::vector<uint8_t>&) { return false; }
    bool start_object(size_t) { return open(Json::object()); }
    bool start_array(size_t) { return open(Json::array()); }
    bool key(std::string& value) {
        keys_.push_back(std::move(value));
        return true;
    }
    bool end_object() { return close(); }
    bool end_array() { return close(); }
    bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) {
        position_ = position;
        message_ = e.what();
        return false;
    }

    Json take() { return std::move(root_); }
    size_t position() const { return position_; }
    const std::string& message() const { return message_; }

  private:
    bool add(Json value) {
        if (open_.empty()) {
            root_ = std::move(value);
        } else if (open_.back().is_array()) {
            open_.back().push_back(std::move(value));
        } else {
            // Not Json::set: it looks for an earlier key, which would be quadratic. Repeated keys
            // are taken out when the object closes.
            open_.back().as_object().emplace_back(std::move(keys_.back()), std::move(value));
            keys_.pop_back();
        }
        return true;
    }
    bool open(Json value) {
        if (static_cast<int>(open_.size()) >= max_depth_) {
            message_ = fmt::format("nested deeper than {} levels", max_depth_);
            return false;
        }
        open_.push_back(std::move(value));
        return true;
    }
    bool close() {
        Json done = std::move(open_.back());
        open_.pop_back();
        if (done.is_object() && !keep_last_of_repeated_keys(done.as_object())) return false;
        return add(std::move(done));
    }
    // False where that is an error.
    bool keep_last_of_repeated_keys(Json::Object& members) {
        std::vector<size_t> order(members.size());
        for (size_t i = 0; i < order.size(); ++i) order[i] = i;
        std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
            return members[a].first != members[b].first ? members[a].first < members[b].first : a < b;
        });
        std::vector<bool> drop(members.size(), false);
        bool any = false;
        for (size_t i = 0; i + 1 < order.size(); ++i) {
            if (members[order[i]].first == members[order[i + 1]].first) drop[order[i]] = any = true;
        }
        if (!any) return true;
        if (repeated_ == Json::RepeatedKey::kError) {
            const size_t first = std::find(drop.begin(), drop.end(), true) - drop.begin();
            message_ = fmt::format("repeated key \"{}\"", members[first].first);
            return false;
        }
        Json::Object kept;
        for (size_t i = 0; i < members.size(); ++i) {
            if (!drop[i]) kept.push_back(std::move(members[i]));
        }
        members = std::move(kept);
        return true;
    }

    int max_depth_;
    Json::RepeatedKey repeated_;
    Json root_;
    std::vector<Json> open_;
    std::vector<std::string> keys_;
    size_t position_ = 0;
    std::string message_;
};

nlohmann::ordered_json to_nlohmann(const Json& json) {
    if (json.is_bool()) return json.as_bool();
    if (json.is_int()) return json.as_int();
    if (json.is_double()) {
        return std::isfinite(json.as_double()) ? nlohmann::ordered_json(json.as_double())
                                               : nlohmann::ordered_json();
    }
    if (json.is_string()) return json.as_string();
    if (json.is_array()) {
        auto array = nlohmann::ordered_json::array();
        for (const Json& item : json.as_array()) array.push_back(to_nlohmann(item));
        return array;
    }
    if (json.is_object()) {
        auto object = nlohmann::ordered_json::object();
        for (const auto& [key, value] : json.as_object()) object[key] = to_nlohmann(value);
        return object;
    }
    return nullptr;
}

}  // namespace

const char* Json::type_name() const {
    static const char* const kNames[] = {"null",   "bool",  "integer", "number",
                                         "string", "array", "object"};
    return kNames[value_.index()];
}

const Json* Json::find(std::string_view key) const {
    if (!is_object()) return nullptr;
    for (const auto& [name, value] : as_object()) {
        if (name == key) return &value;
    }
    return nullptr;
}

Json* Json::find(std::string_view key) {
    return const_cast<Json*>(static_cast<const Json*>(this)->find(key));
}

const Json& Json::operator[](std::string_view key) const {
    static const Json kNull;
    const Json* found = find(key);
    return found ? *found : kNull;
}

Json& Json::set(std::string key, Json value) {
    if (Json* found = find(key)) {
        *found = std::move(value);
    } else {
        as_object().emplace_back(std::move(key), std::move(value));
    }
    return *this;
}

std::string Json::dump(int indent) const {
    return to_nlohmann(*this).dump(indent, ' ', false,
                                   nlohmann::ordered_json::error_handler_t::replace);
}

Result<Json> Json::parse(std::string_view text, int max_depth, RepeatedKey repeated) {
    Builder builder(max_depth, repeated);
    if (nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return builder.take();
    const size_t position = std::min(builder.position(), text.size());
    const size_t byte = position > 0 ? position - 1 : 0;
    const size_t line = 1 + std::count(text.begin(), text.begin() + byte, '\n');
    const size_t line_start = byte == 0 ? std::string_view::npos : text.rfind('\n', byte - 1);
    const size_t column = line_start == std::string_view::npos ? byte + 1 : byte - line_start;
    // nlohmann's text is "[json.exception.parse_error.101] parse error at line …: syntax error …"
    std::string why = builder.message();
    if (size_t colon = why.find(": "); colon != std::string::npos) why = why.substr(colon + 2);
    return error("line {} column {} (byte {}): {}", line, column, byte, why);
}

Result<std::string> read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return error("{}: cannot open: {}", path, std::strerror(errno));
    std::ostringstream text;
    text << file.rdbuf();
    if (file.bad()) return error("{}: cannot read: {}", path, std::strerror(errno));
    return std::move(text).str();
}

Result<Json> read_json_file(const std::string& path) {
    auto text = read_file(path);
    if (!text) return text.error();
    auto json = Json::parse(*text);
    if (!json) return error("{}: {}", path, json.message());
    return json;
}

}  // namespace aerie
