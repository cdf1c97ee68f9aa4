#include "template/interpreter.h"

#include "template/budget.h"
#include "template/failure.h"
#include "template/limits.h"

namespace aerie::jinja {

class Interpreter::ScopeGuard {
  public:
    ScopeGuard(Interpreter& interpreter, Scope* parent)
        : interpreter_(interpreter), before_(interpreter.scope_) {
        interpreter.enter(parent);
    }
    ~ScopeGuard() {
        interpreter_.leave();
        interpreter_.scope_ = before_;
    }

  private:
    Interpreter& interpreter_;
    Scope* before_;
};

class Interpreter::DepthGuard {
  public:
    explicit DepthGuard(Interpreter& interpreter) : depth_(interpreter.depth_) {
        if (++depth_ > kMaxEvaluationDepth) {
            --depth_;
            fail("nested deeper than {} levels", kMaxEvaluationDepth);
        }
    }
    ~DepthGuard() { --depth_; }

  private:
    int& depth_;
};

// The items of a for block, through its filter.
class Interpreter::Filtered final : public ItemSource {
  public:
    Filtered(Interpreter& interpreter, const Node& node, const Value& items)
        : interpreter_(interpreter), node_(node), scope_(interpreter.scope_) {
        const bool shared = items.is_sequence() &&
                            items.sequence().kind != Sequence::Kind::kGenerator;
        list_ = shared ? items : make_list(iterate(items));
        sized_ = !node.condition &&
                 !(items.is_sequence() && items.sequence().kind == Sequence::Kind::kGenerator);
    }

    std::optional<Value> next() override {
        const Items& items = list_.sequence().items;
        while (next_ < items.size()) {
            charge(1);
            const Value& item = items[next_++];
            if (!node_.condition || passes(item)) return item;
        }
        return std::nullopt;
    }
    std::optional<size_t> size() const override {
        return sized_ ? std::optional(list_.sequence().items.size()) : std::nullopt;
    }

  private:
    bool passes(const Value& item) {
        const ScopeGuard guard(interpreter_, scope_);
        interpreter_.assign(*node_.target, item);
        return is_true(interpreter_.evaluate(*node_.condition));
    }

    Interpreter& interpreter_;
    const Node& node_;
    Scope* scope_;  // around the for block
    Value list_;
    bool sized_;
    size_t next_ = 0;
};

Interpreter::~Interpreter() {
    // Namespaces may refer to each other in circles.
    for (auto& space : namespaces_) space->members.clear();
}

std::string Interpreter::render(const Block& block, const Json& variables) {
    std::string out;
    out_ = &out;
    const ScopeGuard guard(*this, nullptr);
    for (const auto& [name, value] : variables.as_object()) assign_name(name, from_json(value));
    execute(block);
    return out;
}

void Interpreter::enter(Scope* parent) {
    scopes_.push_back(std::make_unique<Scope>());
    scope_ = scopes_.back().get();
    scope_->parent = parent;
}

void Interpreter::leave() {
    if (scopes_.back()->captured) kept_.push_back(std::move(scopes_.back()));
    scopes_.pop_back();
}

Interpreter::Flow Interpreter::execute(const Block& block) {
    for (const auto& node : block) {
        const Flow flow = execute(*node);
        if (flow != Flow::kNormal) return flow;
    }
    return Flow::kNormal;
}

Interpreter::Flow Interpreter::execute(const Node& node) {
    const DepthGuard guard(*this);
    try {
        charge(1);
        switch (node.kind) {
            case Node::Kind::kText: write(node.text); break;
            case Node::Kind::kOutput:
                for (const ExprPtr& expr : node.exprs) print(evaluate(*expr));
                break;
            case Node::Kind::kIf: return execute_if(node);
            case Node::Kind::kFor: return execute_for(node);
            case Node::Kind::kSet: assign(*node.target, evaluate(*node.expr)); break;
            case Node::Kind::kSetBlock: {
                Value text = capture(node.body);
                assign(*node.target, node.expr ? evaluate_filter(*node.expr, text) : text);
                break;
            }
            case Node::Kind::kMacro: assign_name(node.text, make_macro(node)); break;
            case Node::Kind::kCall: execute_call_block(node); break;
            case Node::Kind::kFilter: {
                const Value text = capture(node.body);
                print(evaluate_filter(*node.expr, text));
                break;
            }
            case Node::Kind::kWith: return execute_with(node);
            case Node::Kind::kScoped: write(capture(node.body)); break;
            case Node::Kind::kBreak: return Flow::kBreak;
            case Node::Kind::kContinue: return Flow::kContinue;
        }
        return Flow::kNormal;
    } catch (Failure& failure) {
        if (failure.line == 0) failure.line = node.line;
        throw;
    }
}

Interpreter::Flow Interpreter::execute_if(const Node& node) {
    for (const auto& [condition, body] : node.branches) {
        if (is_true(evaluate(*condition))) return execute(body);
    }
    return execute(node.otherwise);
}

Interpreter::Flow Interpreter::execute_for(const Node& node) {
    Filtered source(*this, node, evaluate(*node.expr));
    const auto loop = std::make_shared<Loop>(&source);
    Scope* const around = scope_;
    bool any = false;
    while (loop->advance()) {
        any = true;
        const ScopeGuard guard(*this, around);
        assign_name("loop", loop);
        assign(*node.target, loop->current());
        if (execute(node.body) == Flow::kBreak) break;
    }
    loop->end();
    if (any) return Flow::kNormal;
    const ScopeGuard guard(*this, around);
    return execute(node.otherwise);
}

Interpreter::Flow Interpreter::execute_with(const Node& node) {
    // The values are those outside: one assignment does not see another.
    Items values;
    for (const auto& assignment : node.assignments) values.push_back(evaluate(*assignment.second));
    const ScopeGuard guard(*this, scope_);
    for (size_t i = 0; i < values.size(); ++i) assign(*node.assignments[i].first, values[i]);
    return execute(node.body);
}

void Interpreter::execute_call_block(const Node& node) {
    const Value callee = evaluate(*node.expr->args[0]);
    Args args = evaluate_arguments(*node.expr);
    args.named.emplace_back("caller", make_macro(node));
    print(call(callee, std::move(args)));
}

std::string Interpreter::capture(const Block& block) {
    std::string text;
    std::string* const before = std::exchange(out_, &text);
    const ScopeGuard guard(*this, scope_);
    execute(block);
    out_ = before;
    return text;
}

void Interpreter::write(std::string_view text) {
    charge_bytes(out_->size() + text.size() > kMaxStringBytes ? kMaxStringBytes + 1 : text.size());
    out_->append(text);
}

void Interpreter::print(const Value& value) {
    if (value.is_string()) {
        write(value.string());
    } else {
        write(to_str(value));
    }
}

void Interpreter::assign_name(std::string_view name, Value value) {
    for (auto& [known, place] : scope_->names) {
        if (known == name) {
            place = std::move(value);
            return;
        }
    }
    charge(1 + scope_->names.size() / 8);
    scope_->names.emplace_back(name, std::move(value));
}

void Interpreter::assign(const Expr& target, const Value& value) {
    if (target.kind == Expr::Kind::kName) return assign_name(target.name, value);
    if (target.kind == Expr::Kind::kAttribute) {
        const Value object = look_up(target.args[0]->name);
        if (!object.is_namespace()) fail("cannot assign attribute on non-namespace object");
        auto& members = object.name_space().members;
        for (auto& [name, place] : members) {
            if (name == target.name) {
                place = value;
                return;
            }
        }
        charge(1 + members.size() / 8);
        members.emplace_back(target.name, value);
        return;
    }
    const Items items = iterate(value);
    if (items.size() != target.args.size()) {
        if (items.size() > target.args.size()) {
            fail("too many values to unpack (expected {})", target.args.size());
        }
        fail("not enough values to unpack (expected {}, got {})", target.args.size(), items.size());
    }
    for (size_t i = 0; i < items.size(); ++i) assign(*target.args[i], items[i]);
}

Value Interpreter::make_macro(const Node& node) {
    for (Scope* scope = scope_; scope && !scope->captured; scope = scope->parent) {
        scope->captured = true;
    }
    auto macro = std::make_shared<Callable>();
    macro->kind = Callable::Kind::kMacro;
    macro->name = node.text;
    macro->macro = &node;
    macro->scope = scope_;
    return macro;
}

Value Interpreter::call_macro(const Callable& macro, Args args) {
    const DepthGuard depth(*this);
    std::string text;
    std::string* const before = std::exchange(out_, &text);
    const ScopeGuard guard(*this, macro.scope);
    bind_parameters(*macro.macro, std::move(args));
    execute(macro.macro->body);
    out_ = before;
    return text;
}

void Interpreter::bind_parameters(const Node& macro, Args args) {
    const auto& parameters = macro.parameters;
    std::vector<std::pair<std::string, Value>> rest;
    std::vector<std::optional<Value>> values(parameters.size());
    Value caller = Value::undefined("No caller defined");
    for (size_t i = 0; i < parameters.size() && i < args.positional.size(); ++i) {
        values[i] = args.positional[i];
    }
    for (auto& [name, value] : args.named) {
        size_t i = 0;
        while (i < parameters.size() && parameters[i].name != name) ++i;
        if (i < parameters.size()) {
            if (values[i]) fail("macro '{}' got two values for the argument '{}'", macro.text, name);
            values[i] = std::move(value);
        } else if (name == "caller" && macro.uses_caller) {
            caller = std::move(value);
        } else {
            rest.emplace_back(name, std::move(value));
        }
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
        if (!values[i]) {
            values[i] = parameters[i].fallback
                            ? evaluate(*parameters[i].fallback)
                            : Value::undefined(fmt::format("parameter '{}' was not provided",
                                                           parameters[i].name));
        }
        assign_name(parameters[i].name, *std::move(values[i]));
    }
    if (macro.uses_caller) assign_name("caller", std::move(caller));
    if (macro.uses_kwargs) {
        Entries entries;
        for (auto& [name, value] : rest) entries.emplace_back(name, std::move(value));
        assign_name("kwargs", make_dict(std::move(entries)));
    } else if (!rest.empty()) {
        fail("macro '{}' takes no keyword argument '{}'", macro.text, rest[0].first);
    }
    const size_t num_extra =
        args.positional.size() - std::min(args.positional.size(), parameters.size());
    if (macro.uses_varargs) {
        assign_name("varargs",
                    make_tuple(Items(args.positional.end() - num_extra, args.positional.end())));
    } else if (num_extra > 0) {
        fail("macro '{}' takes not more than {} argument(s)", macro.text, parameters.size());
    }
}

Value Interpreter::make_namespace(const Args& args) {
    charge(64);  // it lives until the end of the rendering
    auto space = std::make_shared<Namespace>();
    const auto set = [&](const std::string& name, const Value& value) {
        for (auto& [known, place] : space->members) {
            if (known == name) {
                place = value;
                return;
            }
        }
        space->members.emplace_back(name, value);
    };
    for (const Value& value : args.positional) {
        if (!value.is_dict()) fail("namespace() takes a dict or names, not {}", type_name(value));
        for (const auto& [key, member] : value.dict().entries) set(to_str(key), member);
    }
    for (const auto& [name, value] : args.named) set(name, value);
    namespaces_.push_back(space);
    return space;
}

}  // namespace aerie::jinja
