// "…" % values and "…".format(values), as far as chat templates use them.
#include <cmath>
#include <optional>

#include "template/budget.h"
#include "template/failure.h"
#include "template/interpreter.h"
#include "template/python_text.h"

namespace aerie::jinja {
namespace {

struct Spec {
    bool left = false, zero = false, plus = false, space = false;
    size_t width = 0;
    std::optional<size_t> precision;
    char type = 's';
};

size_t read_number(const std::string& format, size_t& at) {
    size_t number = 0;
    while (at < format.size() && format[at] >= '0' && format[at] <= '9') {
        number = number * 10 + (format[at++] - '0');
        if (number > 10'000) fail("a width or precision over 10000 in a format is not supported");
    }
    return number;
}

// What follows the '%'.
Spec read_spec(const std::string& format, size_t& at) {
    Spec spec;
    for (; at < format.size(); ++at) {
        if (format[at] == '-') spec.left = true;
        else if (format[at] == '0') spec.zero = true;
        else if (format[at] == '+') spec.plus = true;
        else if (format[at] == ' ') spec.space = true;
        else break;
    }
    spec.width = read_number(format, at);
    if (at < format.size() && format[at] == '.') spec.precision = read_number(format, ++at);
    if (at >= format.size()) fail("incomplete format");
    spec.type = format[at++];
    return spec;
}

std::string number_text(const Spec& spec, const Value& value) {
    if (!value.is_number()) {
        if (value.is_undefined()) fail("{}", value.undefined_message());
        fail("%{} format: a real number is required, not {}", spec.type, type_name(value));
    }
    const bool is_integer = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (is_integer) {
        if (value.is_integral()) return std::to_string(value.integral());
        const double whole = std::trunc(value.number());
        if (!(std::fabs(whole) < 9e18)) fail("%d format: {} is too large", value.number());
        return std::to_string(static_cast<int64_t>(whole));
    }
    if (spec.type == 'f' || spec.type == 'F') {
        return fmt::format("{:.{}f}", value.number(), spec.precision.value_or(6));
    }
    if (!value.is_integral()) fail("%{} format: an integer is required", spec.type);
    const int64_t number = value.integral();
    return spec.type == 'x' ? fmt::format("{:x}", number)
           : spec.type == 'X' ? fmt::format("{:X}", number)
                              : fmt::format("{:o}", number);
}

std::string formatted(const Spec& spec, const Value& value) {
    std::string text;
    const bool is_text = spec.type == 's' || spec.type == 'r';
    if (is_text) {
        text = spec.type == 's' ? to_str(value) : to_repr(value);
        if (spec.precision) text.resize(byte_of_code(text, *spec.precision));
    } else if (std::string_view("diufFxXo").find(spec.type) != std::string_view::npos) {
        text = number_text(spec, value);
        if (text[0] != '-' && (spec.plus || spec.space)) text.insert(0, spec.plus ? "+" : " ");
    } else {
        fail("the format %{} is not supported", spec.type);
    }
    const size_t length = num_codes(text);
    if (length >= spec.width) return text;
    const size_t missing = spec.width - length;
    if (spec.left) return text + std::string(missing, ' ');
    if (spec.zero && !is_text) {
        const bool sign = text[0] == '-' || text[0] == '+' || text[0] == ' ';
        return text.insert(sign ? 1 : 0, missing, '0');
    }
    return std::string(missing, ' ') + text;
}

}  // namespace

std::string format_percent(const std::string& format, const Value& arguments) {
    const bool tuple =
        arguments.is_sequence() && arguments.sequence().kind == Sequence::Kind::kTuple;
    const Items values = tuple ? arguments.sequence().items : Items{arguments};
    size_t used = 0;
    std::string out;
    for (size_t at = 0; at < format.size();) {
        if (format[at] != '%') {
            out += format[at++];
            continue;
        }
        ++at;
        if (at < format.size() && format[at] == '(') {
            const size_t end = format.find(')', at);
            if (end == std::string::npos) fail("incomplete format key");
            if (!arguments.is_dict()) fail("format requires a mapping");
            const std::string key = format.substr(at + 1, end - at - 1);
            const Value* value = arguments.dict().find_text_key(key);
            if (!value) fail("the format's key '{}' is missing", key);
            at = end + 1;
            out += formatted(read_spec(format, at), *value);
            used = values.size();
        } else if (at < format.size() && format[at] == '%') {
            out += '%';
            ++at;
        } else {
            const Spec spec = read_spec(format, at);
            if (used >= values.size()) fail("not enough arguments for format string");
            out += formatted(spec, values[used++]);
        }
        charge_bytes(out.size());
    }
    // What Python can subscript may leave arguments unused, but for a tuple and a str.
    const bool may_stay = arguments.is_dict() || arguments.is_undefined() ||
                          (arguments.is_sequence() && !tuple);
    if (used < values.size() && !may_stay) {
        fail("not all arguments converted during string formatting");
    }
    charge_bytes(out.size());
    return out;
}

std::string format_braces(const std::string& format, const Args& args) {
    std::string out;
    size_t next = 0;
    for (size_t at = 0; at < format.size(); ++at) {
        const char c = format[at];
        if ((c == '{' || c == '}') && at + 1 < format.size() && format[at + 1] == c) {
            out += c;
            ++at;
            continue;
        }
        if (c == '}') fail("Single '}}' encountered in format string");
        if (c != '{') {
            out += c;
            continue;
        }
        const size_t end = format.find('}', at);
        if (end == std::string::npos) fail("expected '}}' before end of string");
        const std::string field = format.substr(at + 1, end - at - 1);
        at = end;
        const Value* value = nullptr;
        if (field.find_first_not_of("0123456789") == std::string::npos && field.size() < 6) {
            const size_t idx = field.empty() ? next++ : std::stoul(field);
            if (idx >= args.positional.size()) {
                fail("Replacement index {} out of range for positional args tuple", idx);
            }
            value = &args.positional[idx];
        } else if (field.find_first_of("!:.[{") != std::string::npos) {
            fail("the format field \"{{{}}}\" is not supported, only names and numbers are", field);
        } else {
            for (const auto& [name, named] : args.named) {
                if (name == field) value = &named;
            }
            if (!value) fail("the format's name '{}' is missing", field);
        }
        out += to_str(*value);
        charge_bytes(out.size());
    }
    charge_bytes(out.size());
    return out;
}

}  // namespace aerie::jinja
