#include "parse/stop_regexes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aerie::parse {
namespace {

struct Case {
    std::vector<std::string> patterns;
    const char* text;
    const char* trimmed;
    const char* kept;
    const char* matched;  // nullptr: none
};

const Case kCases[] = {
    {{}, "abc", "abc", "abc", nullptr},
    {{"x+"}, "abc", "abc", "abc", nullptr},
    {{"b+"}, "abbc", "a", "abb", "b+"},  // greedy, to its end
    {{"b+"}, "abb", "a", "abb", "b+"},   // which may be the output's
    {{"b+?"}, "abbc", "a", "ab", "b+?"},
    {{"b*"}, "xx", "xx", "xx", nullptr},         // never an empty match
    {{"c", "bcd"}, "abcd", "a", "abcd", "bcd"},  // begins first
    {{"c", "bcd"}, "abce", "ab", "abc", "c"},
    {{"bc", "b"}, "abd", "a", "ab", "b"},
    {{"b", "bc"}, "abc", "a", "ab", "b"},  // at one place: the first pattern
    {{"(?<=a)b"}, "cbab", "cba", "cbab", "(?<=a)b"},
    {{"^b"}, "ab", "ab", "ab", nullptr},
    {{"b$"}, "bab", "ba", "bab", "b$"},
    {{"\\d{3}"}, "12 1234", "12 ", "12 123", "\\d{3}"},
    {{"终.好"}, "x终止好y", "x", "x终止好", "终.好"},
    {{"a.*z"}, "a b c", "a b c", "a b c", nullptr},  // held back to the end
};

TEST(StopRegexes, AreFoundHoweverTheTextIsCut) {
    for (const Case& test : kCases) {
        const std::string text = test.text;
        for (const bool keep : {false, true}) {
            for (unsigned cuts = 0; cuts < 1u << (text.size() - 1); ++cuts) {
                auto stops = StopRegexes::compile(test.patterns, keep);
                ASSERT_TRUE(stops.ok()) << stops.message();
                std::string out, piece;
                std::optional<std::string> matched;
                for (size_t i = 0; i < text.size() && !matched; ++i) {
                    piece += text[i];
                    const bool inside = i + 1 < text.size() && (text[i + 1] & 0xc0) == 0x80;
                    if (inside || (i + 1 < text.size() && !(cuts >> i & 1))) continue;
                    auto found = stops->push(std::exchange(piece, {}));
                    out += found.text;
                    matched = found.matched;
                }
                if (!matched) {
                    auto found = stops->finish();
                    out += found.text;
                    matched = found.matched;
                }
                ASSERT_EQ(out, keep ? test.kept : test.trimmed) << text << " cuts " << cuts;
                ASSERT_EQ(matched,
                          test.matched ? std::optional<std::string>(test.matched) : std::nullopt)
                    << text << " cuts " << cuts;
            }
        }
    }
}

TEST(StopRegexes, PassedTextNeverEndsTheOutput) {
    auto stops = StopRegexes::compile({"ab"}, false);
    EXPECT_EQ(stops->pass("ab").text, "ab");
    EXPECT_EQ(stops->pass("a").text, "a");
    EXPECT_EQ(stops->push("b").text, "b");
    EXPECT_EQ(stops->push("ab").matched, "ab");
}

TEST(StopRegexes, BadPatternsAreErrorsAndCostlyOnesCountAsNone) {
    EXPECT_THAT(StopRegexes::compile({"a("}, false).message(), testing::HasSubstr("at byte 2"));
    EXPECT_FALSE(StopRegexes::compile({""}, false).ok());
    EXPECT_FALSE(StopRegexes::compile({std::string(2000, 'a')}, false).ok());
    EXPECT_FALSE(StopRegexes::compile({"((a{60000}){60000}){60000}"}, false).ok());
    auto stops = StopRegexes::compile({"(a+)+[bc]"}, false);
    const std::string text(2000, 'a');
    EXPECT_EQ(stops->push(text + "!").text + stops->finish().text, text + "!");
}

}  // namespace
}  // namespace aerie::parse
