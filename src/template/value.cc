#include "template/value.h"

#include <algorithm>
#include <unordered_map>

#include "template/budget.h"
#include "template/callable.h"
#include "template/failure.h"
#include "template/limits.h"

namespace aerie::jinja {
namespace {

int depth_of(const Value& value) {
    if (value.is_sequence()) return value.sequence().depth;
    if (value.is_dict()) return value.dict().depth;
    return 0;
}

int depth_above(int deepest) {
    if (deepest >= kMaxValueDepth) fail("values nested deeper than {} levels", kMaxValueDepth);
    return deepest + 1;
}

bool equal_items(const Items& a, const Items& b) {
    return a.size() == b.size() &&
           std::equal(a.begin(), a.end(), b.begin(),
                      [](const Value& x, const Value& y) { return x.same_object(y) || equal(x, y); });
}

bool is_set_like(Sequence::Kind kind) {
    return kind == Sequence::Kind::kDictKeys || kind == Sequence::Kind::kDictItems;
}

// Exact, where a conversion to double would not be.
bool equal_int_float(int64_t a, double b) {
    return b >= -9223372036854775808.0 && b < 9223372036854775808.0 &&
           static_cast<double>(static_cast<int64_t>(b)) == b && static_cast<int64_t>(b) == a;
}

}  // namespace

Value Value::undefined(std::string message) {
    Value value;
    value.value_ = Undefined{std::make_shared<const std::string>(std::move(message))};
    return value;
}

bool Value::same_object(const Value& other) const {
    if (value_.index() != other.value_.index()) return false;
    if (is_sequence()) return &sequence() == &other.sequence();
    if (is_dict()) return &dict() == &other.dict();
    if (is_namespace()) return &name_space() == &other.name_space();
    if (is_callable()) return &callable() == &other.callable();
    if (is_loop()) return &loop() == &other.loop();
    if (is_string()) return string() == other.string();
    if (is_float()) return number() == other.number();
    if (is_integral()) return integral() == other.integral();
    return true;
}

const Value* Dict::find(const Value& key) const {
    for (const auto& [k, v] : entries) {
        if (equal(k, key)) return &v;
    }
    return nullptr;
}

const Value* Dict::find_text_key(std::string_view key) const {
    for (const auto& [k, v] : entries) {
        if (k.is_string() && k.string() == key) return &v;
    }
    return nullptr;
}

Value make_sequence(Sequence::Kind kind, Items items) {
    int deepest = 0;
    for (const Value& item : items) deepest = std::max(deepest, depth_of(item));
    auto sequence = std::make_shared<Sequence>();
    sequence->kind = kind;
    sequence->items = std::move(items);
    sequence->depth = depth_above(deepest);
    return sequence;
}

Value make_dict(Entries entries) {
    auto dict = std::make_shared<Dict>();
    int deepest = 0;
    std::unordered_map<std::string, size_t> places;  // of string keys
    for (auto& [key, value] : entries) {
        deepest = std::max({deepest, depth_of(key), depth_of(value)});
        const Value* found = nullptr;
        if (key.is_string()) {
            const auto [place, added] = places.emplace(key.string(), dict->entries.size());
            if (!added) found = &dict->entries[place->second].second;
        } else {
            found = dict->find(key);
        }
        if (found) {
            *const_cast<Value*>(found) = std::move(value);
        } else {
            dict->entries.emplace_back(std::move(key), std::move(value));
        }
    }
    dict->depth = depth_above(deepest);
    return dict;
}

Value from_json(const Json& json) {
    if (json.is_bool()) return json.as_bool();
    if (json.is_int()) return json.as_int();
    if (json.is_double()) return json.as_double();
    if (json.is_string()) return json.as_string();
    if (json.is_array()) {
        Items items;
        items.reserve(json.as_array().size());
        for (const Json& item : json.as_array()) items.push_back(from_json(item));
        return make_list(std::move(items));
    }
    if (json.is_object()) {
        Entries entries;
        entries.reserve(json.as_object().size());
        for (const auto& [key, value] : json.as_object()) entries.emplace_back(key, from_json(value));
        return make_dict(std::move(entries));
    }
    return {};
}

bool is_true(const Value& value) {
    if (value.is_none() || value.is_undefined()) return false;
    if (value.is_integral()) return value.integral() != 0;
    if (value.is_float()) return value.number() != 0;
    if (value.is_string()) return !value.string().empty();
    if (value.is_sequence()) {
        const Sequence& sequence = value.sequence();
        return sequence.kind == Sequence::Kind::kGenerator || !sequence.items.empty();
    }
    if (value.is_dict()) return !value.dict().entries.empty();
    return true;
}

bool equal(const Value& a, const Value& b) {
    charge(1);
    if (a.is_number() && b.is_number()) {
        if (a.is_integral() && b.is_integral()) return a.integral() == b.integral();
        if (a.is_float() && b.is_float()) return a.number() == b.number();
        return a.is_float() ? equal_int_float(b.integral(), a.number())
                            : equal_int_float(a.integral(), b.number());
    }
    if (a.is_string() && b.is_string()) {
        charge_bytes(std::min(a.string().size(), b.string().size()));
        return a.string() == b.string();
    }
    if (a.is_sequence() && b.is_sequence()) {
        const Sequence& x = a.sequence();
        const Sequence& y = b.sequence();
        if (x.kind == Sequence::Kind::kGenerator || x.kind == Sequence::Kind::kDictValues) {
            return &x == &y;
        }
        if (is_set_like(x.kind) && is_set_like(y.kind)) {
            return x.items.size() == y.items.size() &&
                   std::all_of(x.items.begin(), x.items.end(), [&](const Value& item) {
                       return std::any_of(y.items.begin(), y.items.end(),
                                          [&](const Value& other) { return equal(item, other); });
                   });
        }
        return x.kind == y.kind && equal_items(x.items, y.items);
    }
    if (a.is_dict() && b.is_dict()) {
        const Entries& entries = a.dict().entries;
        return entries.size() == b.dict().entries.size() &&
               std::all_of(entries.begin(), entries.end(), [&](const auto& entry) {
                   const Value* other = b.dict().find(entry.first);
                   return other && equal(entry.second, *other);
               });
    }
    return a.same_object(b);
}

bool less(const Value& a, const Value& b, std::string_view op) {
    charge(1);
    if (a.is_number() && b.is_number()) {
        if (a.is_integral() && b.is_integral()) return a.integral() < b.integral();
        return a.number() < b.number();
    }
    if (a.is_string() && b.is_string()) {
        charge_bytes(std::min(a.string().size(), b.string().size()));
        return a.string() < b.string();  // bytes have the order of code points
    }
    if (a.is_sequence() && b.is_sequence() && a.sequence().kind == b.sequence().kind &&
        (a.sequence().kind == Sequence::Kind::kList || a.sequence().kind == Sequence::Kind::kTuple)) {
        const Items& x = a.sequence().items;
        const Items& y = b.sequence().items;
        for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
            if (!equal(x[i], y[i])) return less(x[i], y[i], op);
        }
        return x.size() < y.size();
    }
    for (const Value* value : {&a, &b}) {
        if (value->is_undefined()) fail("{}", value->undefined_message());
    }
    fail("'{}' not supported between instances of '{}' and '{}'", op, type_name(a), type_name(b));
}

bool is_hashable(const Value& value) {
    if (value.is_dict()) return false;
    if (!value.is_sequence()) return true;
    const Sequence& sequence = value.sequence();
    if (sequence.kind == Sequence::Kind::kList) return false;
    return sequence.kind != Sequence::Kind::kTuple ||
           std::all_of(sequence.items.begin(), sequence.items.end(), is_hashable);
}

}  // namespace aerie::jinja
