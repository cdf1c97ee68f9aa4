// The values that a template works with, as Python has them. Cheap to copy: what is large is
// shared. Lists and dicts never change once made (the sandbox is immutable), so sharing is not seen.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"

namespace aerie::jinja {

class Value;
struct Sequence;
struct Dict;
struct Namespace;
struct Callable;
class Loop;

struct Undefined {
    std::shared_ptr<const std::string> message;  // what using it as a value says
};
struct None {};

class Value {
  public:
    Value() : value_(None{}) {}
    Value(bool value) : value_(value) {}
    Value(int64_t value) : value_(value) {}
    Value(double value) : value_(value) {}
    Value(std::string value) : value_(std::make_shared<const std::string>(std::move(value))) {}
    Value(std::string_view value) : Value(std::string(value)) {}
    Value(const char* value) : Value(std::string(value)) {}
    Value(std::shared_ptr<Sequence> value) : value_(std::move(value)) {}
    Value(std::shared_ptr<Dict> value) : value_(std::move(value)) {}
    Value(std::shared_ptr<Namespace> value) : value_(std::move(value)) {}
    Value(std::shared_ptr<Callable> value) : value_(std::move(value)) {}
    Value(std::shared_ptr<Loop> value) : value_(std::move(value)) {}
    static Value undefined(std::string message);

    template <typename T>
    bool is() const {
        return std::holds_alternative<T>(value_);
    }
    bool is_undefined() const { return is<Undefined>(); }
    bool is_none() const { return is<None>(); }
    bool is_bool() const { return is<bool>(); }
    bool is_int() const { return is<int64_t>(); }  // and not a bool
    bool is_float() const { return is<double>(); }
    bool is_integral() const { return is_int() || is_bool(); }
    bool is_number() const { return is_integral() || is_float(); }
    bool is_string() const { return is<std::shared_ptr<const std::string>>(); }
    bool is_sequence() const { return is<std::shared_ptr<Sequence>>(); }
    bool is_dict() const { return is<std::shared_ptr<Dict>>(); }
    bool is_namespace() const { return is<std::shared_ptr<Namespace>>(); }
    bool is_callable() const { return is<std::shared_ptr<Callable>>(); }
    bool is_loop() const { return is<std::shared_ptr<Loop>>(); }

    // Ask is_…() first.
    const std::string& undefined_message() const { return *std::get<Undefined>(value_).message; }
    int64_t integral() const { return is_bool() ? std::get<bool>(value_) : std::get<int64_t>(value_); }
    double number() const {
        return is_float() ? std::get<double>(value_) : static_cast<double>(integral());
    }
    const std::string& string() const {
        return *std::get<std::shared_ptr<const std::string>>(value_);
    }
    Sequence& sequence() const { return *std::get<std::shared_ptr<Sequence>>(value_); }
    const Dict& dict() const { return *std::get<std::shared_ptr<Dict>>(value_); }
    Namespace& name_space() const { return *std::get<std::shared_ptr<Namespace>>(value_); }
    const Callable& callable() const { return *std::get<std::shared_ptr<Callable>>(value_); }
    Loop& loop() const { return *std::get<std::shared_ptr<Loop>>(value_); }
    bool same_object(const Value& other) const;  // Python's `is`

  private:
    std::variant<None, Undefined, bool, int64_t, double, std::shared_ptr<const std::string>,
                 std::shared_ptr<Sequence>, std::shared_ptr<Dict>, std::shared_ptr<Namespace>,
                 std::shared_ptr<Callable>, std::shared_ptr<Loop>>
        value_;
};

struct Sequence {
    enum class Kind {
        kList,
        kTuple,
        kRange,
        kDictKeys,    // dict views: no index
        kDictValues,
        kDictItems,
        kGenerator  // what map, select and the like return: always true, no length, read once
    };
    Kind kind = Kind::kList;
    std::vector<Value> items;
    int depth = 1;      // 1 + the deepest item's
    size_t next = 0;    // kGenerator: the first item not read yet
};

struct Dict {
    std::vector<std::pair<Value, Value>> entries;  // in order; keys differ
    int depth = 1;
    const Value* find(const Value& key) const;
    const Value* find_text_key(std::string_view key) const;
};

struct Namespace {
    std::vector<std::pair<std::string, Value>> members;
};

using Items = std::vector<Value>;
using Entries = std::vector<std::pair<Value, Value>>;

// Each throws Failure where the values nest too deep.
Value make_sequence(Sequence::Kind kind, Items items);
inline Value make_list(Items items) { return make_sequence(Sequence::Kind::kList, std::move(items)); }
inline Value make_tuple(Items items) {
    return make_sequence(Sequence::Kind::kTuple, std::move(items));
}
inline Value make_generator(Items items) {
    return make_sequence(Sequence::Kind::kGenerator, std::move(items));
}
Value make_dict(Entries entries);  // a repeated key keeps its place and takes the last value
Value from_json(const Json& json);

bool is_true(const Value& value);
bool equal(const Value& a, const Value& b);
// Python's a < b. Throws Failure where the types have no order; op is for the message.
bool less(const Value& a, const Value& b, std::string_view op = "<");
bool is_hashable(const Value& value);

std::string type_name(const Value& value);  // Python's: "str", "dict", "NoneType", …
std::string to_str(const Value& value);     // str(value)
std::string to_repr(const Value& value);    // repr(value)

struct JsonStyle {
    bool ensure_ascii = false;
    bool pretty = false;  // line breaks, with `indent` once for each level
    std::string indent;
    std::string item_separator = ", ";
    std::string key_separator = ": ";
    bool sort_keys = false;
};
std::string to_json(const Value& value, const JsonStyle& style);  // json.dumps(value)

}  // namespace aerie::jinja
