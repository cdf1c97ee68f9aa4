// The tokenizer's parts alone: UTF-8 repair, patterns, splitting, merging.
#include <gtest/gtest.h>

#include <random>

#include "tokenizer/bpe.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/regex.h"
#include "tokenizer/splitter.h"
#include "tokenizer/utf8.h"

namespace aerie {
namespace {

TEST(Utf8, RepairsMaximalParts) {
    const std::pair<std::string, std::string> cases[] = {
        {"abc", "abc"},
        {"你\xf0\x9f\x98\x80", "你\xf0\x9f\x98\x80"},
        {"\x80", "\ufffd"},
        {"\xc0\x80", "\ufffd\ufffd"},                  // overlong
        {"\xe4\xbd", "\ufffd"},                        // cut off: one part
        {"\xf0\x9f\x98", "\ufffd"},
        {"\xf0\x9f\x98\x41", "\ufffd\x41"},
        {"\xed\xa0\x80", "\ufffd\ufffd\ufffd"},        // a surrogate
        {"\xf4\x90\x80\x80", "\ufffd\ufffd\ufffd\ufffd"},  // beyond U+10FFFF
        {"a\xff\xfe", "a\ufffd\ufffd"},
    };
    for (const auto& [bytes, expected] : cases) {
        std::string repaired;
        append_repaired_utf8(repaired, bytes);
        EXPECT_EQ(repaired, expected);
        EXPECT_EQ(valid_utf8_prefix(repaired), repaired.size());
    }
}

TEST(Utf8, IncompleteSuffix) {
    const std::pair<std::string, size_t> cases[] = {
        {"", 0},           {"a", 0},          {"\xe4", 1},   {"\xe4\xbd", 2}, {"\xe4\xbd\xa0", 0},
        {"\xf0\x9f\x98", 3}, {"\xe4\x41", 0}, {"\x80", 0},   {"\xff", 0},     {"\xed\xa0", 0},
        {"\xc3", 1},       {"\x80\x80\x80", 0}};
    for (const auto& [bytes, expected] : cases) EXPECT_EQ(incomplete_utf8_suffix(bytes), expected);
}

TEST(ByteLevel, Alphabet) {
    EXPECT_EQ(byte_level_bytes("ĠHello"), " Hello");
    EXPECT_EQ(byte_level_bytes("Ċ"), "\n");
    EXPECT_EQ(byte_level_bytes("ä½ł"), "你");
    EXPECT_EQ(byte_level_bytes("<｜User｜>"), "<｜User｜>");  // outside the alphabet
    EXPECT_FALSE(is_byte_level("a b"));
    EXPECT_TRUE(is_byte_level("ab"));
}

TEST(Regex, SaysTheSameInPcre2) {
    EXPECT_EQ(translate_regex(R"(\s+(?!\S))").value(), R"(\p{White_Space}+(?!\P{White_Space}))");
    EXPECT_EQ(translate_regex(R"([^\r\n\w]\w)").value(),
              R"([^\r\n\p{L}\p{M}\p{N}\p{Pc}][\p{L}\p{M}\p{N}\p{Pc}])");
    for (const char* same : {R"([!"#\[\\\]^_`{|}~][A-Za-z]+)", R"((?i:'s|'t))", R"([^a]|(?:b)(?=c))"}) {
        EXPECT_EQ(translate_regex(same).value(), same);
    }
    for (const char* refused : {R"(\h)", R"([a[b]])", R"([a&&b])", R"((?m:a))", R"([\W])", R"(\b)",
                                R"((?<name>a))", R"(\k<n>)", R"(a\)", R"([]a])"}) {
        EXPECT_FALSE(translate_regex(refused).ok()) << refused;
    }
}

TEST(Regex, WhiteSpaceIsOnigurumas) {
    const Regex regex = Regex::compile(R"(\s)", false).value();
    RegexScratch scratch;
    for (const char* space : {" ", "\t", "\u0085", "\u00a0", "\u2028", "\u3000"}) {
        EXPECT_TRUE(regex.find(space, 0, scratch).has_value());
    }
    for (const char* other : {"a", "\u180e", "\u200b", "\ufeff"}) {
        EXPECT_FALSE(regex.find(other, 0, scratch).has_value());
    }
}

struct Words : WordSink {
    std::vector<std::string> words;
    void word(std::string_view bytes) override { words.emplace_back(bytes); }
};

std::vector<std::string> split(std::string_view text, std::vector<SplitStep> steps) {
    RegexScratch scratch;
    Words words;
    Splitter::make(steps).value().split(text, scratch, words);
    return words.words;
}

TEST(Splitter, Behaviors) {
    using Behavior = SplitStep::Behavior;
    const std::pair<Behavior, std::vector<std::string>> cases[] = {
        {Behavior::kRemoved, {"the", "final", "countdown"}},
        {Behavior::kIsolated, {"the", "-", "final", "-", "-", "countdown"}},
        {Behavior::kMergedWithPrevious, {"the-", "final-", "-", "countdown"}},
        {Behavior::kMergedWithNext, {"the", "-final", "-", "-countdown"}},
        {Behavior::kContiguous, {"the", "-", "final", "--", "countdown"}},
    };
    for (const auto& [behavior, expected] : cases) {
        EXPECT_EQ(split("the-final--countdown", {{"-", false, behavior, false}}), expected);
    }
    EXPECT_EQ(split("a1b22", {{"[a-z]", true, Behavior::kRemoved, true}}),
              (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(split("héx", {{"x*", true, Behavior::kIsolated, false}}),  // matches of nothing
              (std::vector<std::string>{"h", "é", "x"}));
}

TEST(Splitter, StepsSeeThePiecesBeforeThem) {
    EXPECT_EQ(split("ab12", {{R"(\p{N})"}, {R"(^1|a)"}}),
              (std::vector<std::string>{"a", "b", "1", "2"}));
}

// The definition itself: again and again the best pair, the leftmost of equals.
std::vector<int32_t> merge_slowly(const TokenizerFile& file, const Bpe& bpe, std::string_view word) {
    std::vector<std::string> symbols;
    for (char c : word) symbols.emplace_back(1, c);
    while (true) {
        size_t best_rank = file.merges.size(), best = 0;
        for (size_t i = 0; i + 1 < symbols.size(); ++i) {
            for (size_t rank = 0; rank < best_rank; ++rank) {
                if (file.merges[rank] == std::pair(symbols[i], symbols[i + 1])) {
                    best_rank = rank;
                    best = i;
                }
            }
        }
        if (best_rank == file.merges.size()) break;
        symbols[best] += symbols[best + 1];
        symbols.erase(symbols.begin() + static_cast<long>(best) + 1);
    }
    std::vector<int32_t> ids;
    for (const std::string& symbol : symbols) ids.push_back(*bpe.find(symbol));
    return ids;
}

// Random merges over three letters, so that the order of merging matters everywhere.
TEST(Bpe, ShortAndLongWordsMergeByTheDefinition) {
    std::mt19937 random(7);
    const auto below = [&](size_t n) { return random() % n; };
    for (int round = 0; round < 20; ++round) {
        TokenizerFile file;
        for (int byte = 0; byte < 256; ++byte) {
            file.vocab.push_back({std::string(1, static_cast<char>(byte)), byte, true});
        }
        std::vector<std::string> tokens = {"a", "b", "c"};
        while (file.merges.size() < 40) {
            const std::string left = tokens[below(tokens.size())];
            const std::string right = tokens[below(tokens.size())];
            const std::string whole = left + right;
            if (std::find(tokens.begin(), tokens.end(), whole) != tokens.end()) continue;
            file.vocab.push_back({whole, static_cast<int32_t>(file.vocab.size()), true});
            file.merges.emplace_back(left, right);
            tokens.push_back(whole);
        }
        const Bpe bpe = Bpe::make(file).value();
        Bpe::Scratch scratch;
        for (size_t length : {1, 2, 3, 8, 31, 32, 33, 64, 200}) {
            std::string word;
            while (word.size() < length) word += static_cast<char>('a' + below(3));
            std::vector<int32_t> ids;
            bpe.encode(word, scratch, ids);
            ASSERT_EQ(ids, merge_slowly(file, bpe, word)) << word;
        }
    }
}

TEST(Bpe, IgnoreMergesTakesWholeWords) {
    TokenizerFile file;
    for (int byte = 0; byte < 256; ++byte) {
        file.vocab.push_back({std::string(1, static_cast<char>(byte)), byte, true});
    }
    file.vocab.push_back({"abc", 256, true});  // no merge leads to it
    Bpe::Scratch scratch;
    for (bool ignore : {false, true}) {
        file.ignore_merges = ignore;
        std::vector<int32_t> ids;
        Bpe::make(file).value().encode("abc", scratch, ids);
        EXPECT_EQ(ids, ignore ? std::vector<int32_t>{256} : (std::vector<int32_t>{'a', 'b', 'c'}));
    }
}

}  // namespace
}  // namespace aerie
