// Python's operators, subscripts and iteration.
#include <algorithm>
#include <cmath>

#include "template/budget.h"
#include "template/callable.h"
#include "template/failure.h"
#include "template/interpreter.h"
#include "template/python_text.h"

namespace aerie::jinja {
namespace {

[[noreturn]] void fail_operands(std::string_view op, const Value& a, const Value& b) {
    for (const Value* value : {&a, &b}) {
        if (value->is_undefined()) fail("{}", value->undefined_message());
    }
    if (op == "+" && a.is_string()) {
        fail("can only concatenate str (not \"{}\") to str", type_name(b));
    }
    fail("unsupported operand type(s) for {}: '{}' and '{}'", op, type_name(a), type_name(b));
}

[[noreturn]] void fail_overflow(std::string_view op) {
    fail("the result of {} is beyond 64 bits, which is not supported", op);
}

int64_t floor_divide(int64_t a, int64_t b) {
    if (b == -1) {
        if (a == INT64_MIN) fail_overflow("//");
        return -a;
    }
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t modulo(int64_t a, int64_t b) {
    if (b == -1) return 0;
    const int64_t rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double modulo(double a, double b) {
    const double rest = std::fmod(a, b);
    if (rest == 0) return std::copysign(0.0, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
}

// Python's float.__floordiv__: from the exact remainder, not from the rounded quotient.
double floor_divide(double a, double b) {
    const double quotient = (a - modulo(a, b)) / b;
    if (quotient == 0) return std::copysign(0.0, a / b);
    const double down = std::floor(quotient);
    return quotient - down > 0.5 ? down + 1 : down;
}

Value power(int64_t base, int64_t exponent) {
    if (exponent < 0) {
        if (base == 0) fail("0.0 cannot be raised to a negative power");
        return std::pow(static_cast<double>(base), static_cast<double>(exponent));
    }
    int64_t result = 1;
    while (exponent > 0) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) fail_overflow("**");
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) fail_overflow("**");
    }
    return result;
}

Value integer_operation(std::string_view op, int64_t a, int64_t b) {
    int64_t result = 0;
    if (op == "+") {
        if (__builtin_add_overflow(a, b, &result)) fail_overflow(op);
        return result;
    }
    if (op == "-") {
        if (__builtin_sub_overflow(a, b, &result)) fail_overflow(op);
        return result;
    }
    if (op == "*") {
        if (__builtin_mul_overflow(a, b, &result)) fail_overflow(op);
        return result;
    }
    if (op == "**") return power(a, b);
    if (b == 0) {
        fail("{}", op == "/" ? "division by zero" : "integer division or modulo by zero");
    }
    if (op == "/") return static_cast<double>(a) / static_cast<double>(b);
    if (op == "//") return floor_divide(a, b);
    return modulo(a, b);
}

Value float_operation(std::string_view op, double a, double b) {
    if (op == "+") return a + b;
    if (op == "-") return a - b;
    if (op == "*") return a * b;
    if (op == "**") {
        if (a == 0 && b < 0) fail("0.0 cannot be raised to a negative power");
        if (a < 0 && std::floor(b) != b) fail("complex numbers are not supported");
        return std::pow(a, b);
    }
    if (b == 0) fail("{}", op == "/" ? "float division by zero" : "float floor division by zero");
    if (op == "/") return a / b;
    if (op == "//") return floor_divide(a, b);
    return modulo(a, b);
}

Value repeat(const Value& value, int64_t times) {
    const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
    if (value.is_string()) {
        const std::string& text = value.string();
        if (!text.empty()) charge_bytes(count > kMaxStringBytes ? count : count * text.size());
        std::string result;
        for (size_t i = 0; i < count && !text.empty(); ++i) result += text;
        return result;
    }
    const Sequence& sequence = value.sequence();
    Items items;
    if (!sequence.items.empty()) {
        charge(count > static_cast<size_t>(kMaxSteps) ? count : count * sequence.items.size());
        for (size_t i = 0; i < count; ++i) {
            items.insert(items.end(), sequence.items.begin(), sequence.items.end());
        }
    }
    return make_sequence(sequence.kind, std::move(items));
}

bool is_list_or_tuple(const Value& value) {
    return value.is_sequence() && (value.sequence().kind == Sequence::Kind::kList ||
                                   value.sequence().kind == Sequence::Kind::kTuple);
}

// 'dict object' as in Jinja's messages.
std::string described(const Value& object) {
    return object.is_none() ? "None" : type_name(object) + " object";
}

Value no_attribute(const Value& object, const std::string& name) {
    return Value::undefined(fmt::format("'{}' has no attribute '{}'", described(object), name));
}

bool is_unsafe(const Value& object, const std::string& name) {
    if (name.size() > 4 && name.starts_with("__") && name.ends_with("__")) return true;
    if (object.is_dict()) {
        for (std::string_view unsafe : {"clear", "pop", "popitem", "setdefault", "update"}) {
            if (name == unsafe) return true;
        }
    } else if (object.is_sequence() && object.sequence().kind == Sequence::Kind::kList) {
        for (std::string_view unsafe :
             {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}) {
            if (name == unsafe) return true;
        }
    }
    return false;
}

// What getattr(object, name) finds, in the sandbox.
std::optional<Value> find_attribute(const Value& object, const std::string& name) {
    if (is_unsafe(object, name)) {
        return Value::undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe.",
                                            name, type_name(object)));
    }
    if (object.is_namespace()) {
        for (const auto& [known, value] : object.name_space().members) {
            if (known == name) return value;
        }
        return std::nullopt;
    }
    if (object.is_loop()) {
        if (auto value = object.loop().attribute(name)) return value;
    }
    if (object.is_callable() && object.callable().kind == Callable::Kind::kMacro && name == "name") {
        return Value(object.callable().name);
    }
    if (!has_method(object, name)) return std::nullopt;
    auto method = std::make_shared<Callable>();
    method->kind = Callable::Kind::kMethod;
    method->name = name;
    method->self = object;
    return method;
}

// What object[key] finds.
std::optional<Value> find_item(const Value& object, const Value& key) {
    if (object.is_dict()) {
        charge(1 + object.dict().entries.size() / 8);
        const Value* found =
            key.is_string() ? object.dict().find_text_key(key.string()) : object.dict().find(key);
        return found ? std::optional(*found) : std::nullopt;
    }
    if (!key.is_integral()) return std::nullopt;
    int64_t idx = key.integral();
    if (object.is_string()) {
        charge_bytes(object.string().size());
        const std::string& text = object.string();
        if (idx < 0) idx += static_cast<int64_t>(num_codes(text));
        if (idx < 0) return std::nullopt;
        size_t at = byte_of_code(text, idx);
        if (at >= text.size()) return std::nullopt;
        const size_t begin = at;
        next_code(text, at);
        return Value(text.substr(begin, at - begin));
    }
    if (is_list_or_tuple(object) ||
        (object.is_sequence() && object.sequence().kind == Sequence::Kind::kRange)) {
        const Items& items = object.sequence().items;
        if (idx < 0) idx += static_cast<int64_t>(items.size());
        if (idx >= 0 && idx < static_cast<int64_t>(items.size())) return items[idx];
    }
    return std::nullopt;
}

}  // namespace

Value negative(const Value& value) {
    if (value.is_float()) return -value.number();
    if (!value.is_integral()) {
        if (value.is_undefined()) fail("{}", value.undefined_message());
        fail("bad operand type for unary -: '{}'", type_name(value));
    }
    return integer_operation("-", 0, value.integral());
}

Value positive(const Value& value) {
    if (value.is_float()) return value;
    if (!value.is_integral()) {
        if (value.is_undefined()) fail("{}", value.undefined_message());
        fail("bad operand type for unary +: '{}'", type_name(value));
    }
    return value.integral();
}

Value binary(std::string_view op, const Value& a, const Value& b) {
    if (op == "~") {
        std::string text = to_str(a);
        text += to_str(b);
        charge_bytes(text.size());
        return text;
    }
    if (op == "%" && a.is_string()) return format_percent(a.string(), b);
    if (a.is_number() && b.is_number()) {
        if (a.is_integral() && b.is_integral()) {
            return integer_operation(op, a.integral(), b.integral());
        }
        return float_operation(op, a.number(), b.number());
    }
    if (op == "+" && a.is_string() && b.is_string()) {
        charge_bytes(a.string().size() + b.string().size());
        return a.string() + b.string();
    }
    if (op == "+" && is_list_or_tuple(a) && is_list_or_tuple(b) &&
        a.sequence().kind == b.sequence().kind) {
        Items items = a.sequence().items;
        items.insert(items.end(), b.sequence().items.begin(), b.sequence().items.end());
        charge(1 + items.size());
        return make_sequence(a.sequence().kind, std::move(items));
    }
    if (op == "*" && (a.is_string() || is_list_or_tuple(a)) && b.is_integral()) {
        return repeat(a, b.integral());
    }
    if (op == "*" && (b.is_string() || is_list_or_tuple(b)) && a.is_integral()) {
        return repeat(b, a.integral());
    }
    fail_operands(op, a, b);
}

bool contains(const Value& container, const Value& item) {
    if (container.is_string()) {
        if (!item.is_string()) {
            if (item.is_undefined()) fail("{}", item.undefined_message());
            fail("'in <string>' requires string as left operand, not {}", type_name(item));
        }
        charge_bytes(container.string().size());
        return find_text(container.string(), item.string()) != std::string::npos;
    }
    if (container.is_dict()) {
        charge(1 + container.dict().entries.size() / 8);
        if (!is_hashable(item)) fail("unhashable type: '{}'", type_name(item));
        return container.dict().find(item) != nullptr;
    }
    const Items items = iterate(container);
    return std::any_of(items.begin(), items.end(), [&](const Value& other) {
        return other.same_object(item) || equal(other, item);
    });
}

Value attribute(const Value& object, const std::string& name) {
    if (object.is_undefined()) fail("{}", object.undefined_message());
    if (auto found = find_attribute(object, name)) return *std::move(found);
    if (auto found = find_item(object, Value(name))) return *std::move(found);
    return no_attribute(object, name);
}

Value item(const Value& object, const Value& key) {
    if (object.is_undefined()) fail("{}", object.undefined_message());
    if (auto found = find_item(object, key)) return *std::move(found);
    if (!key.is_string()) {
        return Value::undefined(fmt::format("{} has no element {}", described(object), to_repr(key)));
    }
    if (auto found = find_attribute(object, key.string())) return *std::move(found);
    return no_attribute(object, key.string());
}

Value slice(const Value& object, const Value* start, const Value* stop, const Value* step) {
    if (object.is_undefined()) fail("{}", object.undefined_message());
    const bool sliceable = object.is_string() || is_list_or_tuple(object) ||
                           (object.is_sequence() && object.sequence().kind == Sequence::Kind::kRange);
    if (object.is_dict()) fail("unhashable type: 'slice'");
    if (!sliceable) fail("'{}' object is not subscriptable", type_name(object));
    for (const Value* bound : {start, stop, step}) {
        if (bound && !bound->is_integral()) {
            fail("slice indices must be integers or None, not {}", type_name(*bound));
        }
    }
    charge_bytes(object.is_string() ? object.string().size() : 0);
    const auto length = static_cast<int64_t>(object.is_string() ? num_codes(object.string())
                                                                : object.sequence().items.size());
    const int64_t by = step ? step->integral() : 1;
    if (by == 0) fail("slice step cannot be zero");
    const int64_t lowest = by > 0 ? 0 : -1, highest = by > 0 ? length : length - 1;
    const auto place = [&](const Value* bound, int64_t absent) {
        if (!bound) return absent;
        const int64_t at = bound->integral();
        return std::clamp(at < 0 ? at + length : at, lowest, highest);
    };
    const int64_t from = place(start, by > 0 ? lowest : highest);
    const int64_t to = place(stop, by > 0 ? highest : lowest);
    if (object.is_string() && by == 1) {
        if (from >= to) return "";
        const std::string_view text = object.string();
        const size_t begin = byte_of_code(text, from);
        return text.substr(begin, byte_of_code(text.substr(begin), to - from));
    }
    std::vector<int64_t> places;
    for (int64_t at = from; by > 0 ? at < to : at > to;) {
        places.push_back(at);
        if (__builtin_add_overflow(at, by, &at)) break;
    }
    charge(1 + places.size());
    if (object.is_string()) {
        const auto all = characters(object.string());
        std::string text;
        for (int64_t at : places) text += all[at];
        return text;
    }
    Items items;
    for (int64_t at : places) items.push_back(object.sequence().items[at]);
    return make_sequence(object.sequence().kind, std::move(items));
}

Items iterate(const Value& value) {
    Items items;
    if (value.is_undefined()) return items;
    if (value.is_sequence()) {
        Sequence& sequence = value.sequence();
        charge(1 + sequence.items.size());
        if (sequence.kind != Sequence::Kind::kGenerator) return sequence.items;
        items.assign(sequence.items.begin() + sequence.next, sequence.items.end());
        sequence.next = sequence.items.size();
    } else if (value.is_dict()) {
        charge(1 + value.dict().entries.size());
        for (const auto& entry : value.dict().entries) items.push_back(entry.first);
    } else if (value.is_string()) {
        charge(1 + value.string().size());
        for (std::string_view character : characters(value.string())) items.emplace_back(character);
    } else {
        fail("'{}' object is not iterable", type_name(value));
    }
    return items;
}

int64_t length(const Value& value) {
    if (value.is_undefined()) return 0;
    if (value.is_string()) {
        charge_bytes(value.string().size());
        return static_cast<int64_t>(num_codes(value.string()));
    }
    if (value.is_dict()) return static_cast<int64_t>(value.dict().entries.size());
    if (value.is_sequence() && value.sequence().kind != Sequence::Kind::kGenerator) {
        return static_cast<int64_t>(value.sequence().items.size());
    }
    fail("object of type '{}' has no len()", type_name(value));
}

}  // namespace aerie::jinja
