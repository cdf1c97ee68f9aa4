// Filters over lists and dicts.
#include <algorithm>

#include "template/arguments.h"
#include "template/budget.h"
#include "template/failure.h"
#include "template/filters.h"
#include "template/python_text.h"

namespace aerie::jinja {
namespace {

// What sort, unique, min and max compare: lower case where case does not count.
Value sort_key(const Value& item, const Value* path, bool case_sensitive) {
    Value key = path && !path->is_none() ? attribute_path(item, *path) : item;
    if (case_sensitive || !key.is_string()) return key;
    charge_bytes(key.string().size());
    return to_lower(key.string());
}

Value list(const FilterCall& call) {
    const Arguments none(call.name, call.args, {});
    return make_list(iterate(call.input));
}

Value first(const FilterCall& call) {
    const Arguments none(call.name, call.args, {});
    if (call.input.is_sequence() && call.input.sequence().kind == Sequence::Kind::kGenerator) {
        Sequence& sequence = call.input.sequence();
        if (sequence.next < sequence.items.size()) return sequence.items[sequence.next++];
    } else {
        Items items = iterate(call.input);
        if (!items.empty()) return items.front();
    }
    return Value::undefined("No first item, sequence was empty.");
}

Value last(const FilterCall& call) {
    const Arguments none(call.name, call.args, {});
    if (call.input.is_sequence() && call.input.sequence().kind == Sequence::Kind::kGenerator) {
        fail("'generator' object is not reversible");
    }
    Items items = iterate(call.input);
    return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value reverse(const FilterCall& call) {
    const Arguments none(call.name, call.args, {});
    Items items = iterate(call.input);
    std::reverse(items.begin(), items.end());
    if (!call.input.is_string()) return make_generator(std::move(items));
    std::string text;
    for (const Value& character : items) text += character.string();
    return text;
}

Value items(const FilterCall& call) {
    const Arguments none(call.name, call.args, {});
    if (call.input.is_undefined()) return make_generator({});
    if (!call.input.is_dict()) fail("Can only get item pairs from a mapping.");
    Items pairs;
    for (const auto& [key, value] : call.input.dict().entries) pairs.push_back(make_tuple({key, value}));
    charge(1 + pairs.size());
    return make_generator(std::move(pairs));
}

// Several attributes with commas between them sort by the first, then by the second, ….
Items sort_keys(const Value& item, const Value* path, bool case_sensitive) {
    Items keys;
    if (!path || !path->is_string()) {
        keys.push_back(sort_key(item, path, case_sensitive));
        return keys;
    }
    for (std::string_view part : split_by(path->string(), ",", -1)) {
        const Value one(part);
        keys.push_back(sort_key(item, &one, case_sensitive));
    }
    return keys;
}

Value sort(const FilterCall& call) {
    const Arguments bound(call.name, call.args, {"reverse", "case_sensitive", "attribute"});
    std::vector<std::pair<Value, Value>> keyed;  // key, item
    for (Value& item : iterate(call.input)) {
        Value key = make_list(sort_keys(item, bound.find(2), bound.truth(1, false)));
        keyed.emplace_back(std::move(key), std::move(item));
    }
    const bool down = bound.truth(0, false);
    std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
        return down ? less(b.first, a.first) : less(a.first, b.first);
    });
    Items items;
    for (auto& entry : keyed) items.push_back(std::move(entry.second));
    return make_list(std::move(items));
}

Value unique(const FilterCall& call) {
    const Arguments bound(call.name, call.args, {"case_sensitive", "attribute"});
    Items seen, kept;
    for (Value& item : iterate(call.input)) {
        Value key = sort_key(item, bound.find(1), bound.truth(0, false));
        if (!is_hashable(key)) fail("unhashable type: '{}'", type_name(key));
        if (std::any_of(seen.begin(), seen.end(), [&](const Value& k) { return equal(k, key); })) {
            continue;
        }
        seen.push_back(std::move(key));
        kept.push_back(std::move(item));
    }
    return make_generator(std::move(kept));
}

Value min_or_max(const FilterCall& call) {
    const Arguments bound(call.name, call.args, {"case_sensitive", "attribute"});
    const Items items = iterate(call.input);
    if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
    const auto key = [&](const Value& item) {
        return sort_key(item, bound.find(1), bound.truth(0, false));
    };
    const Value* best = &items[0];
    for (const Value& item : items) {
        if (call.name == "min" ? less(key(item), key(*best)) : less(key(*best), key(item))) best = &item;
    }
    return *best;
}

Value sum(const FilterCall& call) {
    const Arguments bound(call.name, call.args, {"attribute", "start"});
    Value total = bound.find(1) ? bound.at(1) : Value(int64_t{0});
    for (const Value& item : iterate(call.input)) {
        total = binary("+", total, bound.has(0) ? attribute_path(item, bound.at(0)) : item);
    }
    return total;
}

Value dictsort(const FilterCall& call) {
    const Arguments bound(call.name, call.args, {"case_sensitive", "by", "reverse"});
    if (!call.input.is_dict()) fail("dictsort needs a dict, not {}", type_name(call.input));
    const std::string by = bound.has(1) ? bound.string(1) : "key";
    if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
    std::vector<std::pair<Value, Value>> keyed;  // sort key, pair
    for (const auto& [key, value] : call.input.dict().entries) {
        keyed.emplace_back(sort_key(by == "key" ? key : value, nullptr, bound.truth(0, false)),
                           make_tuple({key, value}));
    }
    const bool down = bound.truth(2, false);
    std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
        return down ? less(b.first, a.first) : less(a.first, b.first);
    });
    Items pairs;
    for (auto& entry : keyed) pairs.push_back(std::move(entry.second));
    return make_list(std::move(pairs));
}

// map(attribute=…, default=…) or map("filter", …). What is false, none among it, has no items.
Value map(const FilterCall& call) {
    Items mapped;
    if (!is_true(call.input)) return make_generator({});
    if (call.args.positional.empty()) {
        const Arguments bound(call.name, call.args, {"attribute", "default"}, 1);
        for (const Value& item : iterate(call.input)) {
            Value value = attribute_path(item, bound.at(0));
            if (value.is_undefined() && bound.find(1)) value = bound.at(1);
            mapped.push_back(std::move(value));
        }
        return make_generator(std::move(mapped));
    }
    const std::string name = to_str(call.args.positional[0]);
    const Args rest{Items(call.args.positional.begin() + 1, call.args.positional.end()),
                    call.args.named};
    for (const Value& item : iterate(call.input)) {
        mapped.push_back(call.interpreter.filter(name, item, rest));
    }
    return make_generator(std::move(mapped));
}

// select, reject, selectattr and rejectattr: [attribute,] [test, its arguments].
Value select(const FilterCall& call) {
    const bool by_attribute = call.name.ends_with("attr");
    const bool wanted = call.name.starts_with("select");
    const Items& positional = call.args.positional;
    size_t used = 0;
    if (by_attribute && positional.empty()) fail("{} misses the attribute's name", call.name);
    if (by_attribute) ++used;
    std::string test;
    if (used < positional.size()) test = to_str(positional[used++]);
    const Args rest{Items(positional.begin() + used, positional.end()), call.args.named};
    Items kept;
    if (!is_true(call.input)) return make_generator({});
    for (Value& item : iterate(call.input)) {
        const Value value = by_attribute ? attribute_path(item, positional[0]) : item;
        const bool holds =
            test.empty() ? is_true(value) : call.interpreter.test(test, value, rest);
        if (holds == wanted) kept.push_back(std::move(item));
    }
    return make_generator(std::move(kept));
}

}  // namespace

Value attribute_path(const Value& value, const Value& path) {
    if (path.is_integral()) return item(value, path);
    Value found = value;
    const std::string text = to_str(path);
    for (std::string_view part : split_by(text, ".", -1)) {
        const bool is_index = !part.empty() && part.size() < 10 &&
                              part.find_first_not_of("0123456789") == std::string_view::npos;
        found = item(found, is_index ? Value(int64_t{std::stoi(std::string(part))}) : Value(part));
    }
    return found;
}

const std::vector<NamedFilter>& list_filters() {
    static const std::vector<NamedFilter> filters = {
        {"dictsort", dictsort}, {"first", first},     {"items", items},
        {"last", last},         {"list", list},       {"map", map},
        {"max", min_or_max},    {"min", min_or_max},  {"reject", select},
        {"rejectattr", select}, {"reverse", reverse}, {"select", select},
        {"selectattr", select}, {"sort", sort},       {"sum", sum},
        {"unique", unique},
    };
    return filters;
}

}  // namespace aerie::jinja
