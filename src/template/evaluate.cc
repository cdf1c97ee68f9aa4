// Expressions.
#include "template/budget.h"
#include "template/failure.h"
#include "template/interpreter.h"
#include "template/limits.h"

namespace aerie::jinja {

Value Interpreter::evaluate(const Expr& expr) {
    if (++depth_ > kMaxEvaluationDepth) {
        --depth_;
        fail_at(expr.line, "nested deeper than {} levels", kMaxEvaluationDepth);
    }
    try {
        charge(1);
        Value value = evaluate_inner(expr);
        --depth_;
        return value;
    } catch (Failure& failure) {
        --depth_;
        if (failure.line == 0) failure.line = expr.line;
        throw;
    }
}

Value Interpreter::evaluate_inner(const Expr& expr) {
    const auto arg = [&](size_t i) { return evaluate(*expr.args[i]); };
    switch (expr.kind) {
        case Expr::Kind::kConstant: return expr.constant;
        case Expr::Kind::kName: return look_up(expr.name);
        case Expr::Kind::kList: return make_list(evaluate_all(expr, 0));
        case Expr::Kind::kTuple: return make_tuple(evaluate_all(expr, 0));
        case Expr::Kind::kDict: return evaluate_dict(expr);
        case Expr::Kind::kCondition:
            if (is_true(arg(1))) return arg(0);
            if (expr.args[2]) return arg(2);
            return Value::undefined(
                "the inline if-expression evaluated to false and no else section was defined.");
        case Expr::Kind::kAnd: {
            Value left = arg(0);
            return is_true(left) ? arg(1) : left;
        }
        case Expr::Kind::kOr: {
            Value left = arg(0);
            return is_true(left) ? left : arg(1);
        }
        case Expr::Kind::kNot: return !is_true(arg(0));
        case Expr::Kind::kNegative: return negative(arg(0));
        case Expr::Kind::kPositive: return positive(arg(0));
        case Expr::Kind::kBinary: {
            const Value left = arg(0);
            return binary(expr.name, left, arg(1));
        }
        case Expr::Kind::kCompare: return evaluate_compare(expr);
        case Expr::Kind::kAttribute: return attribute(arg(0), expr.name);
        case Expr::Kind::kItem: {
            const Value object = arg(0);
            return item(object, arg(1));
        }
        case Expr::Kind::kSlice: return evaluate_slice(expr);
        case Expr::Kind::kCall: {
            const Value callee = arg(0);
            return call(callee, evaluate_arguments(expr));
        }
        case Expr::Kind::kFilter: return evaluate_filter(expr, {});
        case Expr::Kind::kTest: {
            const Value input = arg(0);
            return test(expr.name, input, evaluate_arguments(expr));
        }
    }
    return {};
}

Value Interpreter::look_up(const std::string& name) {
    for (const Scope* scope = scope_; scope; scope = scope->parent) {
        charge(scope->names.size() / 8);
        for (const auto& [known, value] : scope->names) {
            if (known == name) return value;
        }
    }
    if (has_function(name)) {
        auto function = std::make_shared<Callable>();
        function->kind = Callable::Kind::kFunction;
        function->name = name;
        return function;
    }
    return Value::undefined(fmt::format("'{}' is undefined", name));
}

Items Interpreter::evaluate_all(const Expr& expr, size_t first) {
    Items items;
    items.reserve(expr.args.size() - first);
    for (size_t i = first; i < expr.args.size(); ++i) items.push_back(evaluate(*expr.args[i]));
    return items;
}

Args Interpreter::evaluate_arguments(const Expr& expr) {
    Args args{evaluate_all(expr, 1), {}};
    for (const auto& [name, value] : expr.named) args.named.emplace_back(name, evaluate(*value));
    return args;
}

Value Interpreter::evaluate_dict(const Expr& expr) {
    Entries entries;
    for (size_t i = 0; i < expr.args.size(); i += 2) {
        Value key = evaluate(*expr.args[i]);
        if (!is_hashable(key)) fail("unhashable type: '{}'", type_name(key));
        Value value = evaluate(*expr.args[i + 1]);
        entries.emplace_back(std::move(key), std::move(value));
    }
    return make_dict(std::move(entries));
}

Value Interpreter::evaluate_compare(const Expr& expr) {
    Value left = evaluate(*expr.args[0]);
    for (size_t i = 0; i < expr.names.size(); ++i) {
        const std::string& op = expr.names[i];
        Value right = evaluate(*expr.args[i + 1]);
        bool holds = false;
        if (op == "==") holds = equal(left, right);
        else if (op == "!=") holds = !equal(left, right);
        else if (op == "<") holds = less(left, right, op);
        else if (op == ">") holds = less(right, left, op);
        else if (op == "<=") holds = less(left, right, op) || equal(left, right);
        else if (op == ">=") holds = less(right, left, op) || equal(left, right);
        else if (op == "in") holds = contains(right, left);
        else holds = !contains(right, left);
        if (!holds) return false;
        left = std::move(right);
    }
    return true;
}

Value Interpreter::evaluate_slice(const Expr& expr) {
    const Value object = evaluate(*expr.args[0]);
    Value bounds[3];
    for (int i = 0; i < 3; ++i) {
        if (expr.args[i + 1]) bounds[i] = evaluate(*expr.args[i + 1]);
    }
    const auto bound = [&](int i) { return bounds[i].is_none() ? nullptr : &bounds[i]; };
    return slice(object, bound(0), bound(1), bound(2));
}

// The chain of filters ends at a null input in a filter block: there `input` takes its place.
Value Interpreter::evaluate_filter(const Expr& expr, const Value& input) {
    const Expr* inner = expr.args[0].get();
    Value value = input;
    if (inner) {
        // Only filters stand between here and a filter block's null.
        const Expr* end = inner;
        while (end && end->kind == Expr::Kind::kFilter) end = end->args[0].get();
        value = end ? evaluate(*inner) : evaluate_filter(*inner, input);
    }
    return filter(expr.name, value, evaluate_arguments(expr));
}

Value Interpreter::call(const Value& callee, Args args) {
    if (callee.is_undefined()) fail("{}", callee.undefined_message());
    if (!callee.is_callable()) fail("'{}' object is not callable", type_name(callee));
    const Callable& callable = callee.callable();
    switch (callable.kind) {
        case Callable::Kind::kMacro: return call_macro(callable, std::move(args));
        case Callable::Kind::kMethod: return call_method(callable.self, callable.name, args);
        case Callable::Kind::kFunction: return call_function(*this, callable.name, args);
    }
    return {};
}

}  // namespace aerie::jinja
