// What a template can call, and the `loop` of a for block.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "template/value.h"

namespace aerie::jinja {

struct Node;
struct Scope;

struct Callable {
    enum class Kind {
        kMacro,     // also the caller() of a call block
        kMethod,    // of a value: "a".upper
        kFunction,  // of the environment: range
    };
    Kind kind = Kind::kFunction;
    std::string name;
    Value self;                   // kMethod
    const Node* macro = nullptr;  // kMacro; lives as long as the template
    Scope* scope = nullptr;       // kMacro: where it was defined; lives as long as the rendering
};

// Where a for block takes its items from: one at a time, because its filter may depend on what the
// body did before.
class ItemSource {
  public:
    virtual ~ItemSource() = default;
    virtual std::optional<Value> next() = 0;
    virtual std::optional<size_t> size() const = 0;  // where it is known without reading
};

// jinja2.runtime.LoopContext.
class Loop {
  public:
    explicit Loop(ItemSource* source) : source_(source) {}

    // Moves on; false at the end.
    bool advance();
    const Value& current() const { return *current_; }
    void end() { source_ = nullptr; }  // the block is left; the variable may live on

    // loop.NAME; nothing where there is no such attribute (cycle and changed are methods).
    std::optional<Value> attribute(std::string_view name);
    Value cycle(const std::vector<Value>& values) const;
    bool changed(std::vector<Value> values);

  private:
    bool peek();  // is there an item after this one?
    int64_t length();
    std::optional<Value> pull();

    ItemSource* source_;
    std::vector<Value> read_ahead_;  // all that is left, in reverse, once length() had to know it
    std::optional<Value> before_, current_, after_;
    std::optional<int64_t> length_;
    std::optional<std::vector<Value>> last_changed_;
    int64_t index0_ = -1;
};

}  // namespace aerie::jinja
