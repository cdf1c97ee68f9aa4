// Recursive descent, following jinja2.parser.Parser.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "template/lexer.h"
#include "template/syntax.h"

namespace aerie::jinja {

class Parser {
  public:
    explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}
    Block run();

  private:
    // What a macro's body mentions decides which arguments it takes.
    struct MacroUse {
        bool varargs = false, kwargs = false, caller = false;
    };

    const Token& token() const { return tokens_[at_]; }
    const Token& look() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
    void next() { at_ += at_ + 1 < tokens_.size(); }
    bool is_operator(std::string_view op) const;
    bool is_name(std::string_view name) const;
    bool skip_operator(std::string_view op);
    bool skip_name(std::string_view name);
    void expect_operator(std::string_view op);
    void expect_name(std::string_view name);
    void expect_block_end();
    std::string expect_any_name(const char* what);
    [[noreturn]] void unexpected(std::string_view expected) const;

    // Statements: parser.cc. A block ends before a tag of one of these names.
    Block parse_block(std::initializer_list<std::string_view> ends);
    // The same for a body whose output is a value: a loop around it cannot be left from inside.
    Block parse_captured(std::initializer_list<std::string_view> ends);
    void parse_statement(Block& block);
    std::unique_ptr<Node> parse_if();
    std::unique_ptr<Node> parse_for();
    std::unique_ptr<Node> parse_set();
    std::unique_ptr<Node> parse_macro();
    std::unique_ptr<Node> parse_call_block();
    std::unique_ptr<Node> parse_filter_block();
    std::unique_ptr<Node> parse_with();
    std::unique_ptr<Node> parse_generation();
    void parse_parameters(Node& node);
    void parse_macro_body(Node& node, std::string_view end);
    ExprPtr parse_target(bool allow_attribute);
    ExprPtr parse_one_target(bool allow_attribute);

    // Expressions: parse_expression.cc, from the weakest operator to the strongest.
    ExprPtr parse_expression();
    ExprPtr parse_or();
    ExprPtr parse_and();
    ExprPtr parse_not();
    ExprPtr parse_compare();
    ExprPtr parse_sum();
    ExprPtr parse_concat();
    ExprPtr parse_product();
    ExprPtr parse_power();
    ExprPtr parse_unary(bool with_filters = true);
    ExprPtr parse_primary();
    ExprPtr parse_parenthesized();
    ExprPtr parse_list();
    ExprPtr parse_dict();
    ExprPtr parse_postfix(ExprPtr expr);
    ExprPtr parse_filters_and_tests(ExprPtr expr);
    ExprPtr parse_filters(ExprPtr input);
    ExprPtr parse_filter(ExprPtr input);
    ExprPtr parse_test(ExprPtr input);
    ExprPtr parse_subscript(ExprPtr object);
    void parse_arguments(Expr& call);
    ExprPtr parse_tuple(bool with_condition = true);

    ExprPtr make(Expr::Kind kind, std::string name = {}) const;
    // An expression with its first operand.
    ExprPtr make_on(ExprPtr first, Expr::Kind kind, std::string name = {}) const;
    ExprPtr binary(Expr::Kind kind, std::string name, ExprPtr left, ExprPtr right) const;
    std::unique_ptr<Node> make_node(Node::Kind kind) const;

    // Counts nesting, so that no template can use up the stack.
    class Depth {
      public:
        explicit Depth(Parser& parser);
        ~Depth() { --parser_.depth_; }

      private:
        Parser& parser_;
    };

    std::vector<Token> tokens_;
    size_t at_ = 0;
    int depth_ = 0;
    int loop_depth_ = 0;
    std::vector<MacroUse> macros_;  // that enclose this place
};

}  // namespace aerie::jinja
