// A template as a tree. Built once by the parser, never changed after.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "template/value.h"

namespace aerie::jinja {

struct Expr;
struct Node;
using ExprPtr = std::unique_ptr<Expr>;
using Block = std::vector<std::unique_ptr<Node>>;

struct Expr {
    enum class Kind {
        kConstant,   // constant
        kName,       // name
        kList,       // args
        kTuple,      // args
        kDict,       // args: key, value, key, value, …
        kCondition,  // args: then, condition, else (may be null: undefined)
        kAnd,        // args: left, right
        kOr,
        kNot,        // args: operand
        kNegative,
        kPositive,
        kBinary,     // name: + - * / // % ** ~
        kCompare,    // args: operands; names: the operators between them
        kAttribute,  // args: object; name
        kItem,       // args: object, key
        kSlice,      // args: object, start, stop, step; each of the three may be null
        kCall,       // args: callee, positional …; named
        kFilter,     // name; args: input (null in a filter block), positional …; named
        kTest        // name; args: input, positional …; named
    };
    Kind kind = Kind::kConstant;
    int line = 0;
    int depth = 1;  // 1 + that of args[0]: chains grow on the left without the parser's recursion
    std::string name;
    Value constant;
    std::vector<ExprPtr> args;
    std::vector<std::pair<std::string, ExprPtr>> named;
    std::vector<std::string> names;
};

struct Parameter {
    std::string name;
    ExprPtr fallback;  // may be null
};

struct Node {
    enum class Kind {
        kText,      // text
        kOutput,    // exprs: what is printed, one after the other
        kIf,        // branches; otherwise
        kFor,       // target, expr (the items), condition (may be null); body; otherwise
        kSet,       // target, expr
        kSetBlock,  // target, body, expr (filters, may be null)
        kMacro,     // text (its name), parameters, body
        kCall,      // expr (the call), parameters, body
        kFilter,    // expr (filters), body
        kWith,      // assignments, body
        kScoped,    // body in a scope of its own: a generation block
        kBreak,
        kContinue
    };
    Kind kind = Kind::kText;
    int line = 0;
    std::string text;
    std::vector<ExprPtr> exprs;
    ExprPtr target;  // a kName, a kTuple of targets, or a kAttribute of a name (a namespace's)
    ExprPtr expr, condition;
    std::vector<std::pair<ExprPtr, Block>> branches;
    std::vector<std::pair<ExprPtr, ExprPtr>> assignments;  // target, value
    std::vector<Parameter> parameters;
    bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
    Block body, otherwise;
};

// Throws Failure with a line.
Block parse_template(std::string_view source);

}  // namespace aerie::jinja
