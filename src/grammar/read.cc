#include "grammar/read.h"

#include <xgrammar/compiler.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "grammar/compiled.h"
#include "grammar/limits.h"
#include "grammar/matcher.h"
#include "grammar/structural_tag.h"

namespace aerie::grammar {
namespace {

// XGrammar's message without the condition that failed, on one line and not too long.
std::string in_short(std::string message) {
    constexpr size_t kMost = 400;  // bytes
    const std::string_view mark = ") is false: ";
    if (const size_t at = message.find(mark);
        message.starts_with("Check failed") && at != message.npos) {
        message.erase(0, at + mark.size());
    }
    for (char& c : message) {
        if (static_cast<unsigned char>(c) < ' ') c = ' ';
    }
    size_t size = std::min(message.size(), kMost);
    while (size < message.size() && size > 0 && (message[size] & 0xC0) == 0x80) --size;
    if (size < message.size()) message = message.substr(0, size) + "…";
    const size_t end = message.find_last_not_of(' ');
    message.resize(end == message.npos ? 0 : end + 1);
    return message.empty() ? "it cannot be read" : message;
}

// Blanks between JSON's parts as the model likes them, but not without end: a small model writes
// nothing else then. Strict: only members that the schema names, unless it allows others.
xgrammar::CompiledGrammar compile_schema(xgrammar::GrammarCompiler& compiler,
                                         const std::string& text) {
    return compiler.CompileJSONSchema(text, /*any_whitespace=*/true, /*indent=*/std::nullopt,
                                      /*separators=*/std::nullopt, /*strict_mode=*/true,
                                      /*max_whitespace_cnt=*/kMaxBlanks);
}

}  // namespace

struct Reader::Tokens {
    std::shared_ptr<const Vocabulary> vocabulary;
    // Its functions are not const, but may be called by several threads.
    mutable xgrammar::GrammarCompiler compiler;
};

Reader::Reader(const Tokenizer& tokenizer, std::vector<int32_t> eos_ids, bool only_check)
    : tokenizer_(tokenizer), eos_ids_(std::move(eos_ids)), only_check_(only_check) {}

Reader::~Reader() = default;

size_t memory_of(const Compiled& compiled) { return compiled.grammar.MemorySizeBytes(); }

const Reader::Tokens& Reader::tokens(Markers markers) {
    std::lock_guard lock(mutex_);
    auto& made = tokens_[static_cast<size_t>(markers)];
    if (!made) {
        auto vocabulary = std::make_shared<const Vocabulary>(tokenizer_, eos_ids_, markers);
        // One thread, as there are several compilations at once, and no cache, as the Compiler has
        // one.
        xgrammar::GrammarCompiler compiler(vocabulary->info(), /*max_threads=*/1,
                                           /*cache_enabled=*/false, /*max_memory_bytes=*/-1,
                                           /*enable_dynamic_compilation=*/only_check_);
        made = std::make_unique<const Tokens>(std::move(vocabulary), std::move(compiler));
    }
    return *made;
}

Result<std::shared_ptr<const Compiled>> Reader::compile(const Grammar& grammar) {
    using Kind = Grammar::Kind;
    // A client's structural tags name markers by their text, as SGLang has it.
    const bool are_text = grammar.kind == Kind::kStructuralTag;
    const Tokens& tokens = this->tokens(are_text ? Markers::kAreText : Markers::kAreTokens);
    const auto made = [&](xgrammar::CompiledGrammar compiled) {
        return std::make_shared<const Compiled>(std::move(compiled), tokens.vocabulary);
    };
    switch (grammar.kind) {
        case Kind::kJsonSchema:
            return made(compile_schema(tokens.compiler, grammar.text));
        case Kind::kRegex:
            return made(tokens.compiler.CompileRegex(grammar.text));
        case Kind::kEbnf:
            return made(tokens.compiler.CompileGrammar(grammar.text));
        case Kind::kStructuralTag: {
            auto text = without_old_form(grammar.text);
            if (!text) return text.error();
            return made(tokens.compiler.CompileStructuralTag(*text));
        }
        case Kind::kToolCalls: {
            auto text = with_token_ids(grammar.text, tokenizer_);
            if (!text) return text.error();
            return made(tokens.compiler.CompileStructuralTag(*text));
        }
        default:
            return error("its kind is {}, which is not known", static_cast<int>(grammar.kind));
    }
}

Result<std::shared_ptr<const Compiled>> Reader::read(const Grammar& grammar) {
    RETURN_IF_ERROR(check_limits(grammar));
    try {
        auto compiled = compile(grammar);
        if (!compiled) return compiled;
        auto matcher = Matcher::create(*compiled, false);
        if (!matcher) return matcher.error();
        std::vector<uint32_t> mask((*matcher)->num_words());
        RETURN_IF_ERROR((*matcher)->fill_mask(mask));
        return compiled;
    } catch (const std::exception& failure) {
        return Error{in_short(failure.what())};
    } catch (...) {
        return error("it cannot be read");
    }
}

}  // namespace aerie::grammar
