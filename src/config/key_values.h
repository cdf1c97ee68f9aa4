// How one value of the configuration is read from and written as JSON, by its type. Only keys.cc
// includes this.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "config/keys.h"

namespace aerie {

// An enum of config.h: its words, in the order of its values.
template <typename Enum>
std::vector<const char*> words_of() {
    std::vector<const char*> words;
    for (int i = 0; name_of(static_cast<Enum>(i)) != nullptr; ++i) {
        words.push_back(name_of(static_cast<Enum>(i)));
    }
    return words;
}

template <typename T>
const char* type_word(const T*) {
    static_assert(std::is_enum_v<T>);
    return "choice";
}
inline const char* type_word(const bool*) { return "bool"; }
inline const char* type_word(const int*) { return "int"; }
inline const char* type_word(const int64_t*) { return "int"; }
inline const char* type_word(const double*) { return "float"; }
inline const char* type_word(const std::string*) { return "string"; }
inline const char* type_word(const std::vector<std::string>*) { return "list"; }
inline const char* type_word(const std::vector<std::pair<std::string, std::string>>*) {
    return "table";
}

template <typename T>
std::vector<const char*> choices_of(const T*) {
    if constexpr (std::is_enum_v<T>) return words_of<T>();
    return {};
}

Error wrong_value(const ConfigKey& key, const Json& value);

template <typename T>
Status read_value(const ConfigKey& key, const Json& value, T& into) {
    if constexpr (std::is_enum_v<T>) {
        for (size_t i = 0; value.is_string() && i < key.choices.size(); ++i) {
            if (value.as_string() == key.choices[i]) {
                into = static_cast<T>(i);
                return {};
            }
        }
        return wrong_value(key, value);
    } else if constexpr (std::is_same_v<T, bool>) {
        if (!value.is_bool()) return wrong_value(key, value);
        into = value.as_bool();
    } else if constexpr (std::is_same_v<T, std::string>) {
        if (!value.is_string()) return wrong_value(key, value);
        into = value.as_string();
    } else {  // numbers; 4.0 is a whole number too
        const bool fits =
            value.is_number() && value.as_double() >= key.min && value.as_double() <= key.max &&
            (!std::is_integral_v<T> || value.as_double() == std::floor(value.as_double()));
        if (!fits) return wrong_value(key, value);
        into = value.is_int() ? static_cast<T>(value.as_int()) : static_cast<T>(value.as_double());
    }
    return {};
}

template <typename T>
Status read_value(const ConfigKey& key, const Json& value, std::optional<T>& into) {
    if (value.is_string() && value.as_string() == key.unset) {
        into.reset();
        return {};
    }
    T inner{};
    RETURN_IF_ERROR(read_value(key, value, inner));
    into = inner;
    return {};
}

Status read_value(const ConfigKey& key, const Json& value, std::vector<std::string>& into);
Status read_value(const ConfigKey& key, const Json& value,
                  std::vector<std::pair<std::string, std::string>>& into);

template <typename T>
Json write_value(const T& value) {
    if constexpr (std::is_enum_v<T>) {
        return Json(name_of(value));
    } else {
        return Json(value);
    }
}
inline Json write_value(const std::string& value) { return value.empty() ? Json() : Json(value); }
template <typename T>
Json write_value(const std::optional<T>& value) {
    return value ? write_value(*value) : Json();
}
Json write_value(const std::vector<std::string>& value);
Json write_value(const std::vector<std::pair<std::string, std::string>>& value);

}  // namespace aerie
