// Renders a parsed template once: jinja2's evaluation rules over Python's values.
// One thread, one rendering. Throws Failure.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "template/callable.h"
#include "template/syntax.h"
#include "template/value.h"

namespace aerie::jinja {

// The variables of one block; those of the blocks around it are seen through it.
struct Scope {
    Scope* parent = nullptr;
    std::vector<std::pair<std::string_view, Value>> names;  // views into the template or variables
    bool captured = false;  // a macro refers to it: it lives as long as the rendering
};

// The arguments of a call, a filter or a test, without its input.
struct Args {
    Items positional;
    std::vector<std::pair<std::string, Value>> named;
};

class Interpreter {
  public:
    Interpreter() = default;
    ~Interpreter();
    Interpreter(const Interpreter&) = delete;
    Interpreter& operator=(const Interpreter&) = delete;

    std::string render(const Block& block, const Json& variables);

    // For filters, tests and functions.
    Value filter(const std::string& name, const Value& input, const Args& args);
    bool test(const std::string& name, const Value& input, const Args& args);
    Value call(const Value& callee, Args args);
    Value make_namespace(const Args& args);

  private:
    enum class Flow { kNormal, kBreak, kContinue };

    // Statements: interpreter.cc.
    Flow execute(const Block& block);
    Flow execute(const Node& node);
    Flow execute_if(const Node& node);
    Flow execute_for(const Node& node);
    void execute_call_block(const Node& node);
    Flow execute_with(const Node& node);
    std::string capture(const Block& block);  // its output, in a scope of its own
    void print(const Value& value);
    void write(std::string_view text);
    void assign(const Expr& target, const Value& value);
    void assign_name(std::string_view name, Value value);
    Value call_macro(const Callable& macro, Args args);
    void bind_parameters(const Node& macro, Args args);
    Value make_macro(const Node& node);

    // Expressions: evaluate.cc.
    Value evaluate(const Expr& expr);
    Value evaluate_inner(const Expr& expr);
    Value look_up(const std::string& name);
    Value evaluate_compare(const Expr& expr);
    Value evaluate_slice(const Expr& expr);
    Value evaluate_dict(const Expr& expr);
    Value evaluate_filter(const Expr& expr, const Value& input);
    Items evaluate_all(const Expr& expr, size_t first);
    Args evaluate_arguments(const Expr& expr);

    class ScopeGuard;
    class DepthGuard;
    class Filtered;
    friend class Filtered;
    void enter(Scope* parent);
    void leave();

    std::string* out_ = nullptr;
    Scope* scope_ = nullptr;
    int depth_ = 0;
    std::vector<std::unique_ptr<Scope>> scopes_;  // entered and not left
    std::vector<std::unique_ptr<Scope>> kept_;    // left, but captured
    std::vector<std::shared_ptr<Namespace>> namespaces_;
};

// operators.cc
Value negative(const Value& value);
Value positive(const Value& value);
Value binary(std::string_view op, const Value& a, const Value& b);
bool contains(const Value& container, const Value& item);  // item in container
// Object.name and object[key], as jinja2.sandbox has them: an attribute first, or an item first.
Value attribute(const Value& object, const std::string& name);
Value item(const Value& object, const Value& key);
Value slice(const Value& object, const Value* start, const Value* stop, const Value* step);
// All items; a generator is read to its end.
Items iterate(const Value& value);
int64_t length(const Value& value);

// format.cc
std::string format_percent(const std::string& format, const Value& arguments);   // "…" % x
std::string format_braces(const std::string& format, const Args& args);          // "…".format()

// methods.cc
bool has_method(const Value& object, std::string_view name);
Value call_method(const Value& self, const std::string& name, const Args& args);

// functions.cc
bool has_function(std::string_view name);
Value call_function(Interpreter& interpreter, const std::string& name, const Args& args);

}  // namespace aerie::jinja
