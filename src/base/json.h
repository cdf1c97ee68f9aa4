// Json: the one value type that JSON is read into and written from. Objects keep their order;
// integers and floats stay apart, as in Python, so that templates print what Python prints.
// A plain value: copied by value, owned by whoever holds it, no thread of its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace aerie {

class Json {
  public:
    using Array = std::vector<Json>;
    using Member = std::pair<std::string, Json>;
    using Object = std::vector<Member>;  // in the order of the text; a repeated key keeps the last

    Json() = default;  // null
    Json(std::nullptr_t) {}
    Json(bool value) : value_(value) {}
    Json(int value) : value_(int64_t{value}) {}
    Json(int64_t value) : value_(value) {}
    Json(uint64_t value) : value_(static_cast<int64_t>(value)) {}
    Json(double value) : value_(value) {}
    Json(const char* value) : value_(std::string(value)) {}
    Json(std::string value) : value_(std::move(value)) {}
    Json(std::string_view value) : value_(std::string(value)) {}
    Json(Array value) : value_(std::move(value)) {}
    Json(Object value) : value_(std::move(value)) {}
    static Json object() { return Json(Object{}); }
    static Json array() { return Json(Array{}); }

    bool is_null() const { return value_.index() == 0; }
    bool is_bool() const { return std::holds_alternative<bool>(value_); }
    bool is_int() const { return std::holds_alternative<int64_t>(value_); }
    bool is_double() const { return std::holds_alternative<double>(value_); }
    bool is_number() const { return is_int() || is_double(); }
    bool is_string() const { return std::holds_alternative<std::string>(value_); }
    bool is_array() const { return std::holds_alternative<Array>(value_); }
    bool is_object() const { return std::holds_alternative<Object>(value_); }
    const char* type_name() const;  // "null", "bool", "integer", "number", "string", "array", ...

    // CHECK that the type is right; ask is_…() first about what came from outside.
    bool as_bool() const { return std::get<bool>(value_); }
    int64_t as_int() const { return std::get<int64_t>(value_); }
    double as_double() const { return is_int() ? static_cast<double>(as_int()) : std::get<double>(value_); }
    const std::string& as_string() const { return std::get<std::string>(value_); }
    const Array& as_array() const { return std::get<Array>(value_); }
    Array& as_array() { return std::get<Array>(value_); }
    const Object& as_object() const { return std::get<Object>(value_); }
    Object& as_object() { return std::get<Object>(value_); }

    // The member of an object, or null where this is no object or has no such key.
    const Json* find(std::string_view key) const;
    Json* find(std::string_view key);
    const Json& operator[](std::string_view key) const;  // find, or a null value

    Json& set(std::string key, Json value);  // appends or replaces; returns *this, to be chained
    void push_back(Json value) { as_array().push_back(std::move(value)); }

    bool operator==(const Json&) const = default;

    // Compact UTF-8, as JSON.stringify writes it; indent >= 0 breaks lines. A float that is NaN or
    // infinite becomes null; bytes that are not UTF-8 become U+FFFD.
    std::string dump(int indent = -1) const;

    enum class RepeatedKey { kKeepLast, kError };

    // The error holds "line L column C (byte B): …". Depth beyond max_depth is an error.
    static Result<Json> parse(std::string_view text, int max_depth = 200,
                              RepeatedKey repeated = RepeatedKey::kKeepLast);

  private:
    std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

Result<std::string> read_file(const std::string& path);
Result<Json> read_json_file(const std::string& path);  // errors begin with the path

}  // namespace aerie
