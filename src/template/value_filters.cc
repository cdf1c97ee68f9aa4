// Filters that give numbers or one value.
#include <charconv>
#include <cmath>

#include "template/arguments.h"
#include "template/budget.h"
#include "template/failure.h"
#include "template/filters.h"
#include "template/python_text.h"

namespace aerie::jinja {
namespace {

// A number as int() and float() of Python read it: white space around, underscores inside.
std::optional<std::string> number_text(std::string_view text) {
    text = rstrip(lstrip(text));
    std::string digits;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '_') {
            digits += text[i];
            continue;
        }
        const auto is_alnum = [&](size_t at) {
            return at < text.size() && ((text[at] >= '0' && text[at] <= '9') ||
                                        ((text[at] | 0x20) >= 'a' && (text[at] | 0x20) <= 'f'));
        };
        if (i == 0 || !is_alnum(i - 1) || !is_alnum(i + 1)) return std::nullopt;
    }
    if (digits.starts_with('+')) digits.erase(0, 1);
    if (digits.starts_with('+') || digits.empty()) return std::nullopt;
    return digits;
}

std::optional<int64_t> parse_int(std::string_view text, int64_t base) {
    auto digits = number_text(text);
    if (!digits) return std::nullopt;
    const size_t sign = digits->starts_with('-') ? 1 : 0;
    const char prefix = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '\0';
    if (prefix && digits->size() > sign + 2 && (*digits)[sign] == '0' &&
        ((*digits)[sign + 1] | 0x20) == prefix) {
        digits->erase(sign, 2);
    }
    int64_t value = 0;
    const char* end = digits->data() + digits->size();
    const auto [at, code] = std::from_chars(digits->data(), end, value, static_cast<int>(base));
    if (at != end) return std::nullopt;
    if (code == std::errc::result_out_of_range) fail("the number {} is beyond 64 bits", text);
    return value;
}

std::optional<double> parse_float(std::string_view text) {
    const auto digits = number_text(text);
    if (!digits) return std::nullopt;
    double value = 0;
    const char* end = digits->data() + digits->size();
    const auto [at, code] = std::from_chars(digits->data(), end, value);
    if (at != end || code == std::errc::invalid_argument) return std::nullopt;
    if (code == std::errc::result_out_of_range) return std::strtod(digits->c_str(), nullptr);
    return value;
}

Value to_int(double value) {
    if (!(std::fabs(value) < 9.2e18)) fail("the number {} is beyond 64 bits", repr_float(value));
    return static_cast<int64_t>(value);
}

Value int_filter(const FilterCall& call) {
    const Arguments bound(call.name, call.args, {"default", "base"});
    const Value fallback = bound.find(0) ? bound.at(0) : Value(int64_t{0});
    if (call.input.is_integral()) return call.input.integral();
    if (call.input.is_float()) {
        return std::isfinite(call.input.number()) ? to_int(call.input.number()) : fallback;
    }
    if (!call.input.is_string()) {
        if (call.input.is_undefined()) fail("{}", call.input.undefined_message());
        return fallback;
    }
    const int64_t base = bound.integer(1, 10);
    if (base < 2 || base > 36) fail("int(): the base {} is not supported, expected 2 to 36", base);
    if (const auto value = parse_int(call.input.string(), base)) return *value;
    const auto value = parse_float(call.input.string());
    return value && std::isfinite(*value) ? to_int(*value) : fallback;
}

Value float_filter(const FilterCall& call) {
    const Arguments bound(call.name, call.args, {"default"});
    if (call.input.is_number()) return call.input.number();
    if (call.input.is_string()) {
        if (const auto value = parse_float(call.input.string())) return *value;
    }
    if (call.input.is_undefined()) fail("{}", call.input.undefined_message());
    return bound.find(0) ? bound.at(0) : Value(0.0);
}

Value abs_filter(const FilterCall& call) {
    const Arguments none(call.name, call.args, {});
    if (call.input.is_float()) return std::fabs(call.input.number());
    if (!call.input.is_integral()) fail("bad operand type for abs(): '{}'", type_name(call.input));
    return call.input.integral() < 0 ? negative(call.input) : Value(call.input.integral());
}

// Python's round(): to the nearest decimal of the exact binary value, ties to even.
double round_to(double value, int64_t precision) {
    if (!std::isfinite(value) || precision > 300) return value;
    if (precision < 0) {
        const double unit = std::pow(10.0, static_cast<double>(-precision));
        return std::isfinite(unit) ? std::nearbyint(value / unit) * unit : 0.0 * value;
    }
    return std::strtod(fmt::format("{:.{}f}", value, precision).c_str(), nullptr);
}

Value round_filter(const FilterCall& call) {
    const Arguments bound(call.name, call.args, {"precision", "method"});
    const int64_t precision = bound.integer(0, 0);
    const std::string method = bound.has(1) ? bound.string(1) : "common";
    if (!call.input.is_number()) {
        if (call.input.is_undefined()) fail("{}", call.input.undefined_message());
        fail("type {} doesn't define __round__ method", type_name(call.input));
    }
    if (method == "common") {
        if (call.input.is_float()) return round_to(call.input.number(), precision);
        if (precision >= 0) return call.input.integral();
        return to_int(round_to(static_cast<double>(call.input.integral()), precision));
    }
    if (method != "ceil" && method != "floor") fail("method must be common, ceil or floor");
    const double unit = std::pow(10.0, static_cast<double>(precision));
    const double scaled = call.input.number() * unit;
    return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit;
}

Value default_filter(const FilterCall& call) {
    const Arguments bound(call.name, call.args, {"default_value", "boolean"});
    const bool use = call.input.is_undefined() || (bound.truth(1, false) && !is_true(call.input));
    if (!use) return call.input;
    return bound.find(0) ? bound.at(0) : Value("");
}

Value length_filter(const FilterCall& call) {
    const Arguments none(call.name, call.args, {});
    return length(call.input);
}

Value attr(const FilterCall& call) {
    const Arguments bound(call.name, call.args, {"name"}, 1);
    const std::string name = to_str(bound.at(0));
    // Attributes only, never the items of a dict.
    if (call.input.is_dict() && !has_method(call.input, name)) {
        return Value::undefined(fmt::format("'dict object' has no attribute '{}'", name));
    }
    return attribute(call.input, name);
}

Value wordcount(const FilterCall& call) {
    const Arguments none(call.name, call.args, {});
    const std::string text = to_str(call.input);
    charge(text.size());
    int64_t words = 0;
    bool in_word = false;
    for (size_t at = 0; at < text.size();) {
        const char32_t code = next_code(text, at);
        const bool is_word = is_alpha(code) || is_decimal(code) || code == '_';
        words += is_word && !in_word;
        in_word = is_word;
    }
    return words;
}

}  // namespace

const std::vector<NamedFilter>& value_filters() {
    static const std::vector<NamedFilter> filters = {
        {"abs", abs_filter},     {"attr", attr},         {"count", length_filter},
        {"d", default_filter},   {"default", default_filter}, {"float", float_filter},
        {"int", int_filter},     {"length", length_filter},   {"round", round_filter},
        {"wordcount", wordcount},
    };
    return filters;
}

}  // namespace aerie::jinja
