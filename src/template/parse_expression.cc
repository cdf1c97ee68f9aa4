#include <charconv>

#include "template/failure.h"
#include "template/parser.h"

namespace aerie::jinja {
namespace {

using Type = Token::Type;

bool contains(std::initializer_list<std::string_view> list, std::string_view text) {
    for (std::string_view item : list) {
        if (item == text) return true;
    }
    return false;
}

}  // namespace

ExprPtr Parser::parse_expression() {
    const Depth depth(*this);
    ExprPtr expr = parse_or();
    while (skip_name("if")) {
        ExprPtr test = parse_or();
        ExprPtr condition = make_on(std::move(expr), Expr::Kind::kCondition);
        condition->args.push_back(std::move(test));
        condition->args.push_back(skip_name("else") ? parse_expression() : nullptr);
        expr = std::move(condition);
    }
    return expr;
}

ExprPtr Parser::parse_or() {
    ExprPtr left = parse_and();
    while (skip_name("or")) left = binary(Expr::Kind::kOr, "or", std::move(left), parse_and());
    return left;
}

ExprPtr Parser::parse_and() {
    ExprPtr left = parse_not();
    while (skip_name("and")) left = binary(Expr::Kind::kAnd, "and", std::move(left), parse_not());
    return left;
}

ExprPtr Parser::parse_not() {
    if (!is_name("not")) return parse_compare();
    const Depth depth(*this);
    ExprPtr expr = make(Expr::Kind::kNot);
    next();
    expr->args.push_back(parse_not());
    return expr;
}

ExprPtr Parser::parse_compare() {
    ExprPtr first = parse_sum();
    ExprPtr compare;
    while (true) {
        std::string op;
        if (token().type == Type::kOperator &&
            contains({"==", "!=", "<", "<=", ">", ">="}, token().text)) {
            op = token().text;
            next();
        } else if (skip_name("in")) {
            op = "in";
        } else if (is_name("not") && look().type == Type::kName && look().text == "in") {
            op = "not in";
            next();
            next();
        } else {
            break;
        }
        if (!compare) {
            compare = make_on(std::move(first), Expr::Kind::kCompare);
        }
        compare->names.push_back(std::move(op));
        compare->args.push_back(parse_sum());
    }
    return compare ? std::move(compare) : std::move(first);
}

ExprPtr Parser::parse_sum() {
    ExprPtr left = parse_concat();
    while (is_operator("+") || is_operator("-")) {
        std::string op = token().text;
        next();
        left = binary(Expr::Kind::kBinary, std::move(op), std::move(left), parse_concat());
    }
    return left;
}

ExprPtr Parser::parse_concat() {
    ExprPtr left = parse_product();
    while (skip_operator("~")) {
        left = binary(Expr::Kind::kBinary, "~", std::move(left), parse_product());
    }
    return left;
}

ExprPtr Parser::parse_product() {
    ExprPtr left = parse_power();
    while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
        std::string op = token().text;
        next();
        left = binary(Expr::Kind::kBinary, std::move(op), std::move(left), parse_power());
    }
    return left;
}

ExprPtr Parser::parse_power() {
    ExprPtr left = parse_unary();
    while (skip_operator("**")) {
        left = binary(Expr::Kind::kBinary, "**", std::move(left), parse_unary());
    }
    return left;
}

ExprPtr Parser::parse_unary(bool with_filters) {
    const Depth depth(*this);
    ExprPtr expr;
    if (is_operator("-") || is_operator("+")) {
        expr = make(is_operator("-") ? Expr::Kind::kNegative : Expr::Kind::kPositive);
        next();
        expr->args.push_back(parse_unary(false));
    } else {
        expr = parse_primary();
    }
    expr = parse_postfix(std::move(expr));
    return with_filters ? parse_filters_and_tests(std::move(expr)) : std::move(expr);
}

ExprPtr Parser::parse_primary() {
    ExprPtr expr = make(Expr::Kind::kConstant);
    const Token& first = token();
    switch (first.type) {
        case Type::kName:
            if (first.text == "true" || first.text == "True") {
                expr->constant = true;
            } else if (first.text == "false" || first.text == "False") {
                expr->constant = false;
            } else if (first.text != "none" && first.text != "None") {
                expr->kind = Expr::Kind::kName;
                expr->name = first.text;
                for (MacroUse& use : macros_) {
                    use.varargs |= first.text == "varargs";
                    use.kwargs |= first.text == "kwargs";
                    use.caller |= first.text == "caller";
                }
            }
            next();
            return expr;
        case Type::kString: {
            std::string text;
            for (; token().type == Type::kString; next()) text += token().text;
            expr->constant = std::move(text);
            return expr;
        }
        case Type::kInteger: {
            int64_t value = 0;
            const auto end = first.text.data() + first.text.size();
            if (std::from_chars(first.text.data(), end, value).ptr != end ||
                (first.text.size() > 18 && value == 0)) {
                fail_at(first.line, "the number {} is too large", first.text);
            }
            if (first.text.size() > 1 && first.text[0] == '0' && value != 0) {
                fail_at(first.line, "a number that begins with 0: {}", first.text);
            }
            expr->constant = value;
            next();
            return expr;
        }
        case Type::kFloat: {
            double value = 0;
            std::from_chars(first.text.data(), first.text.data() + first.text.size(), value);
            expr->constant = value;
            next();
            return expr;
        }
        default:
            if (is_operator("(")) return parse_parenthesized();
            if (is_operator("[")) return parse_list();
            if (is_operator("{")) return parse_dict();
            unexpected("an expression");
    }
}

ExprPtr Parser::parse_parenthesized() {
    const Depth depth(*this);
    expect_operator("(");
    if (skip_operator(")")) return make(Expr::Kind::kTuple);
    ExprPtr expr = parse_tuple();
    expect_operator(")");
    return expr;
}

// One expression, or several with commas, which are a tuple.
ExprPtr Parser::parse_tuple(bool with_condition) {
    const auto parse_one = [&] { return with_condition ? parse_expression() : parse_or(); };
    ExprPtr first = parse_one();
    if (!is_operator(",")) return first;
    ExprPtr tuple = make(Expr::Kind::kTuple);
    tuple->args.push_back(std::move(first));
    while (skip_operator(",")) {
        if (token().type == Type::kVariableEnd || token().type == Type::kBlockEnd ||
            is_operator(")")) {
            break;
        }
        tuple->args.push_back(parse_one());
    }
    return tuple;
}

ExprPtr Parser::parse_list() {
    const Depth depth(*this);
    ExprPtr list = make(Expr::Kind::kList);
    expect_operator("[");
    while (!skip_operator("]")) {
        if (!list->args.empty()) {
            expect_operator(",");
            if (skip_operator("]")) break;
        }
        list->args.push_back(parse_expression());
    }
    return list;
}

ExprPtr Parser::parse_dict() {
    const Depth depth(*this);
    ExprPtr dict = make(Expr::Kind::kDict);
    expect_operator("{");
    while (!skip_operator("}")) {
        if (!dict->args.empty()) {
            expect_operator(",");
            if (skip_operator("}")) break;
        }
        dict->args.push_back(parse_expression());
        expect_operator(":");
        dict->args.push_back(parse_expression());
    }
    return dict;
}

ExprPtr Parser::parse_postfix(ExprPtr expr) {
    while (true) {
        if (is_operator(".") || is_operator("[")) {
            expr = parse_subscript(std::move(expr));
        } else if (is_operator("(")) {
            ExprPtr call = make_on(std::move(expr), Expr::Kind::kCall);
            parse_arguments(*call);
            expr = std::move(call);
        } else {
            return expr;
        }
    }
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr expr) {
    while (true) {
        if (is_operator("|")) {
            expr = parse_filters(std::move(expr));
        } else if (is_name("is")) {
            expr = parse_test(std::move(expr));
        } else if (is_operator("(")) {  // calls what a filter returned
            expr = parse_postfix(std::move(expr));
        } else {
            return expr;
        }
    }
}

ExprPtr Parser::parse_filters(ExprPtr input) {
    while (skip_operator("|")) input = parse_filter(std::move(input));
    return input;
}

ExprPtr Parser::parse_filter(ExprPtr input) {
    ExprPtr filter = make_on(std::move(input), Expr::Kind::kFilter);
    filter->name = expect_any_name("a filter's name");
    if (is_operator("(")) parse_arguments(*filter);
    return filter;
}

ExprPtr Parser::parse_test(ExprPtr input) {
    const Depth depth(*this);
    expect_name("is");
    const bool negated = skip_name("not");
    ExprPtr test = make_on(std::move(input), Expr::Kind::kTest);
    test->name = expect_any_name("a test's name");
    const Type type = token().type;
    if (is_operator("(")) {
        parse_arguments(*test);
    } else if ((type == Type::kName && !contains({"else", "or", "and"}, token().text)) ||
               type == Type::kString || type == Type::kInteger || type == Type::kFloat ||
               is_operator("[") || is_operator("{")) {
        if (is_name("is")) fail_at(token().line, "tests cannot be chained with 'is'");
        // "x is divisibleby 3": the one argument may stand without brackets.
        test->args.push_back(parse_postfix(parse_primary()));
    }
    if (!negated) return test;
    return make_on(std::move(test), Expr::Kind::kNot);
}

ExprPtr Parser::parse_subscript(ExprPtr object) {
    ExprPtr expr = make_on(std::move(object), Expr::Kind::kItem);
    if (skip_operator(".")) {
        if (token().type == Type::kInteger) {
            expr->args.push_back(parse_primary());
            return expr;
        }
        expr->kind = Expr::Kind::kAttribute;
        expr->name = expect_any_name("an attribute's name");
        return expr;
    }
    expect_operator("[");
    const auto optional = [&] {
        return is_operator(":") || is_operator("]") ? nullptr : parse_expression();
    };
    ExprPtr first = optional();
    if (!is_operator(":")) {
        if (!first) unexpected("an expression");
        if (is_operator(",")) fail_at(token().line, "subscripts with commas are not supported");
        expr->args.push_back(std::move(first));
    } else {
        expr->kind = Expr::Kind::kSlice;
        expr->args.push_back(std::move(first));
        expect_operator(":");
        expr->args.push_back(optional());
        expr->args.push_back(skip_operator(":") ? optional() : nullptr);
    }
    expect_operator("]");
    return expr;
}

void Parser::parse_arguments(Expr& call) {
    const Depth depth(*this);
    expect_operator("(");
    bool first = true;
    while (!skip_operator(")")) {
        if (!first) {
            expect_operator(",");
            if (skip_operator(")")) break;
        }
        first = false;
        if (is_operator("*") || is_operator("**")) {
            fail_at(token().line, "calls with {} arguments are not supported", token().text);
        }
        if (token().type == Type::kName && look().type == Type::kOperator && look().text == "=") {
            std::string name = token().text;
            next();
            next();
            call.named.emplace_back(std::move(name), parse_expression());
        } else {
            if (!call.named.empty()) fail_at(token().line, "a positional argument after a named one");
            call.args.push_back(parse_expression());
        }
    }
}

}  // namespace aerie::jinja
