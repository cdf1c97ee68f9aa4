#include "template/parser.h"

#include <algorithm>

#include "template/failure.h"
#include "template/limits.h"

namespace aerie::jinja {
namespace {

using Type = Token::Type;

std::string shown(const Token& token) {
    switch (token.type) {
        case Type::kData: return "text";
        case Type::kVariableBegin: return "'{{'";
        case Type::kVariableEnd: return "'}}'";
        case Type::kBlockBegin: return "'{%'";
        case Type::kBlockEnd: return "'%}'";
        case Type::kString: return "a string";
        case Type::kEnd: return "the end of the template";
        default: return "'" + token.text + "'";
    }
}

}  // namespace

Block parse_template(std::string_view source) { return Parser(source).run(); }

Parser::Depth::Depth(Parser& parser) : parser_(parser) {
    if (++parser.depth_ > kMaxSyntaxDepth) {
        fail_at(parser.token().line, "nested deeper than {} levels", kMaxSyntaxDepth);
    }
}

bool Parser::is_operator(std::string_view op) const {
    return token().type == Type::kOperator && token().text == op;
}
bool Parser::is_name(std::string_view name) const {
    return token().type == Type::kName && token().text == name;
}
bool Parser::skip_operator(std::string_view op) {
    if (!is_operator(op)) return false;
    next();
    return true;
}
bool Parser::skip_name(std::string_view name) {
    if (!is_name(name)) return false;
    next();
    return true;
}
void Parser::expect_operator(std::string_view op) {
    if (!skip_operator(op)) unexpected(fmt::format("'{}'", op));
}
void Parser::expect_name(std::string_view name) {
    if (!skip_name(name)) unexpected(fmt::format("'{}'", name));
}
void Parser::expect_block_end() {
    if (token().type != Type::kBlockEnd) unexpected("'%}'");
    next();
}
std::string Parser::expect_any_name(const char* what) {
    if (token().type != Type::kName) unexpected(what);
    std::string name = token().text;
    next();
    return name;
}
void Parser::unexpected(std::string_view expected) const {
    fail_at(token().line, "expected {}, found {}", expected, shown(token()));
}

ExprPtr Parser::make(Expr::Kind kind, std::string name) const {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = token().line;
    expr->name = std::move(name);
    return expr;
}
ExprPtr Parser::make_on(ExprPtr first, Expr::Kind kind, std::string name) const {
    ExprPtr expr = make(kind, std::move(name));
    if (first) {
        expr->depth = first->depth + 1;
        if (expr->depth > kMaxChain) fail_at(expr->line, "a chain of more than {} operators", kMaxChain);
    }
    expr->args.push_back(std::move(first));
    return expr;
}
ExprPtr Parser::binary(Expr::Kind kind, std::string name, ExprPtr left, ExprPtr right) const {
    const int line = left->line;
    ExprPtr expr = make_on(std::move(left), kind, std::move(name));
    expr->line = line;
    expr->args.push_back(std::move(right));
    return expr;
}
std::unique_ptr<Node> Parser::make_node(Node::Kind kind) const {
    auto node = std::make_unique<Node>();
    node->kind = kind;
    node->line = token().line;
    return node;
}

Block Parser::run() { return parse_block({}); }

Block Parser::parse_block(std::initializer_list<std::string_view> ends) {
    const Depth depth(*this);
    const int begin = token().line;
    Block block;
    while (true) {
        switch (token().type) {
            case Type::kData: {
                auto node = make_node(Node::Kind::kText);
                node->text = token().text;
                block.push_back(std::move(node));
                next();
                break;
            }
            case Type::kVariableBegin: {
                auto node = make_node(Node::Kind::kOutput);
                next();
                node->exprs.push_back(parse_tuple());
                if (token().type != Type::kVariableEnd) unexpected("'}}'");
                next();
                block.push_back(std::move(node));
                break;
            }
            case Type::kBlockBegin:
                if (std::find(ends.begin(), ends.end(), look().text) != ends.end()) {
                    next();
                    return block;
                }
                next();
                parse_statement(block);
                break;
            default:
                if (ends.size() == 0) return block;
                fail_at(token().line, "the template ends, expected {{% {} %}} for the block of line {}",
                        *(ends.end() - 1), begin);
        }
    }
}

Block Parser::parse_captured(std::initializer_list<std::string_view> ends) {
    const int loops = std::exchange(loop_depth_, 0);
    Block body = parse_block(ends);
    loop_depth_ = loops;
    return body;
}

void Parser::parse_statement(Block& block) {
    const Token tag = token();
    const std::string& name = tag.text;
    if (tag.type != Type::kName) unexpected("a tag's name");
    if (name == "print") {
        auto node = make_node(Node::Kind::kOutput);
        next();
        while (token().type != Type::kBlockEnd) {
            if (!node->exprs.empty()) expect_operator(",");
            node->exprs.push_back(parse_expression());
        }
        block.push_back(std::move(node));
    } else if (name == "if") {
        block.push_back(parse_if());
    } else if (name == "for") {
        block.push_back(parse_for());
    } else if (name == "set") {
        block.push_back(parse_set());
    } else if (name == "macro") {
        block.push_back(parse_macro());
    } else if (name == "call") {
        block.push_back(parse_call_block());
    } else if (name == "filter") {
        block.push_back(parse_filter_block());
    } else if (name == "with") {
        block.push_back(parse_with());
    } else if (name == "generation") {
        block.push_back(parse_generation());
    } else if (name == "break" || name == "continue") {
        if (loop_depth_ == 0) fail_at(tag.line, "'{}' outside of a loop", name);
        block.push_back(make_node(name == "break" ? Node::Kind::kBreak : Node::Kind::kContinue));
        next();
    } else {
        for (std::string_view known : {"include", "import", "from", "extends", "block", "autoescape",
                                       "do", "trans", "debug"}) {
            if (name == known) fail_at(tag.line, "the tag '{}' is not supported", name);
        }
        fail_at(tag.line, "unknown tag '{}'", name);
    }
    expect_block_end();
}

std::unique_ptr<Node> Parser::parse_if() {
    auto node = make_node(Node::Kind::kIf);
    next();
    while (true) {
        ExprPtr condition = parse_tuple(false);
        expect_block_end();
        node->branches.emplace_back(std::move(condition), parse_block({"elif", "else", "endif"}));
        if (skip_name("elif")) continue;
        if (skip_name("else")) {
            expect_block_end();
            node->otherwise = parse_block({"endif"});
        }
        expect_name("endif");
        return node;
    }
}

std::unique_ptr<Node> Parser::parse_for() {
    auto node = make_node(Node::Kind::kFor);
    next();
    node->target = parse_target(false);
    expect_name("in");
    node->expr = parse_tuple(false);
    if (skip_name("if")) node->condition = parse_expression();
    if (is_name("recursive")) fail_at(token().line, "recursive loops are not supported");
    expect_block_end();
    ++loop_depth_;
    node->body = parse_block({"else", "endfor"});
    --loop_depth_;
    if (skip_name("else")) {
        expect_block_end();
        node->otherwise = parse_block({"endfor"});
    }
    expect_name("endfor");
    return node;
}

std::unique_ptr<Node> Parser::parse_set() {
    auto node = make_node(Node::Kind::kSet);
    next();
    node->target = parse_target(true);
    if (skip_operator("=")) {
        node->expr = parse_tuple();
        return node;
    }
    node->kind = Node::Kind::kSetBlock;
    if (is_operator("|")) node->expr = parse_filters(nullptr);
    expect_block_end();
    node->body = parse_captured({"endset"});
    expect_name("endset");
    return node;
}

void Parser::parse_parameters(Node& node) {
    expect_operator("(");
    while (!skip_operator(")")) {
        if (!node.parameters.empty()) expect_operator(",");
        Parameter parameter{expect_any_name("a parameter's name"), nullptr};
        if (skip_operator("=")) {
            parameter.fallback = parse_expression();
        } else if (!node.parameters.empty() && node.parameters.back().fallback) {
            fail_at(token().line, "the parameter '{}' needs a default like the one before it",
                    parameter.name);
        }
        node.parameters.push_back(std::move(parameter));
    }
}

void Parser::parse_macro_body(Node& node, std::string_view end) {
    macros_.emplace_back();
    node.body = parse_captured({end});
    node.uses_varargs = macros_.back().varargs;
    node.uses_kwargs = macros_.back().kwargs;
    node.uses_caller = macros_.back().caller;
    macros_.pop_back();
    expect_name(end);
}

std::unique_ptr<Node> Parser::parse_macro() {
    auto node = make_node(Node::Kind::kMacro);
    next();
    node->text = expect_any_name("a macro's name");
    parse_parameters(*node);
    expect_block_end();
    parse_macro_body(*node, "endmacro");
    return node;
}

std::unique_ptr<Node> Parser::parse_call_block() {
    auto node = make_node(Node::Kind::kCall);
    next();
    if (is_operator("(")) parse_parameters(*node);
    node->text = "caller";
    node->expr = parse_expression();
    if (node->expr->kind != Expr::Kind::kCall) unexpected("a call");
    expect_block_end();
    parse_macro_body(*node, "endcall");
    return node;
}

std::unique_ptr<Node> Parser::parse_filter_block() {
    auto node = make_node(Node::Kind::kFilter);
    next();
    node->expr = parse_filter(nullptr);
    if (is_operator("|")) node->expr = parse_filters(std::move(node->expr));
    expect_block_end();
    node->body = parse_captured({"endfilter"});
    expect_name("endfilter");
    return node;
}

std::unique_ptr<Node> Parser::parse_with() {
    auto node = make_node(Node::Kind::kWith);
    next();
    while (token().type != Type::kBlockEnd) {
        if (!node->assignments.empty()) expect_operator(",");
        ExprPtr target = parse_target(false);
        expect_operator("=");
        node->assignments.emplace_back(std::move(target), parse_expression());
    }
    next();
    node->body = parse_block({"endwith"});
    expect_name("endwith");
    return node;
}

// Marks what the model wrote, for training; here it only has a scope of its own.
std::unique_ptr<Node> Parser::parse_generation() {
    auto node = make_node(Node::Kind::kScoped);
    next();
    expect_block_end();
    node->body = parse_captured({"endgeneration"});
    expect_name("endgeneration");
    return node;
}

ExprPtr Parser::parse_one_target(bool allow_attribute) {
    if (skip_operator("(")) {
        ExprPtr target = parse_target(false);
        expect_operator(")");
        return target;
    }
    ExprPtr target = make(Expr::Kind::kName);
    target->name = expect_any_name("a variable's name");
    for (std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
        if (target->name == constant) fail_at(target->line, "cannot assign to '{}'", constant);
    }
    if (allow_attribute && skip_operator(".")) {
        ExprPtr attribute = make(Expr::Kind::kAttribute, expect_any_name("an attribute's name"));
        attribute->args.push_back(std::move(target));
        return attribute;
    }
    return target;
}

ExprPtr Parser::parse_target(bool allow_attribute) {
    const Depth depth(*this);
    ExprPtr target = parse_one_target(allow_attribute);
    if (!is_operator(",")) return target;
    ExprPtr tuple = make(Expr::Kind::kTuple);
    tuple->args.push_back(std::move(target));
    while (skip_operator(",")) {
        if (is_name("in") || is_operator("=") || is_operator(")")) break;
        tuple->args.push_back(parse_one_target(allow_attribute));
    }
    return tuple;
}

}  // namespace aerie::jinja
