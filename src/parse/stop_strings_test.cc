#include "parse/stop_strings.h"

#include <gtest/gtest.h>

namespace aerie {
namespace {

struct Case {
    std::vector<std::string> stops;
    const char* text;
    const char* trimmed;
    const char* kept;
    const char* matched;  // nullptr: none
};

const Case kCases[] = {
    {{}, "abc", "abc", "abc", nullptr},
    {{"x"}, "abc", "abc", "abc", nullptr},
    {{"b"}, "abc", "a", "ab", "b"},
    {{"abc"}, "abc", "", "abc", "abc"},
    {{"abcd"}, "abc", "abc", "abc", nullptr},           // held back to the end
    {{"aab"}, "aaaab!", "aa", "aaaab", "aab"},          // a start that fails and begins again
    {{"abc", "b"}, "xabc", "xa", "xab", "b"},           // ends first, though it begins later
    {{"b", "ab"}, "xab", "x", "xab", "ab"},             // end together: the longest
    {{"abab", "bb"}, "ababb", "", "abab", "abab"},
    {{"abx", "bcd"}, "abcd", "a", "abcd", "bcd"},       // within what another's start held back
    {{"\n\n"}, "a\n\n\nb", "a", "a\n\n", "\n\n"},
    {{"终止"}, "好终终止吗", "好终", "好终终止", "终止"},
};

TEST(StopStrings, AreFoundHoweverTheTextIsCut) {
    for (const Case& test : kCases) {
        const std::string text = test.text;
        for (const bool keep : {false, true}) {
            for (unsigned cuts = 0; cuts < 1u << (text.size() - 1); ++cuts) {
                StopStrings stops(test.stops, keep);
                std::string out, piece;
                std::optional<std::string> matched;
                for (size_t i = 0; i < text.size() && !matched; ++i) {
                    piece += text[i];
                    const bool inside = i + 1 < text.size() && (text[i + 1] & 0xc0) == 0x80;
                    if (inside || (i + 1 < text.size() && !(cuts >> i & 1))) continue;
                    auto result = stops.push(std::exchange(piece, {}));
                    out += result.text;
                    matched = result.matched;
                }
                if (!matched) out += stops.finish();
                ASSERT_EQ(out, keep ? test.kept : test.trimmed) << text << " cuts " << cuts;
                ASSERT_EQ(matched, test.matched ? std::optional<std::string>(test.matched)
                                                : std::nullopt);
            }
        }
    }
}

TEST(StopStrings, NoPartOfOneIsLetThroughEarly) {
    StopStrings stops({"END"}, false);
    EXPECT_EQ(stops.push("textE").text, "text");
    EXPECT_EQ(stops.push("N").text, "");
    EXPECT_EQ(stops.push("E").text, "EN");  // the new E may begin one
    EXPECT_EQ(stops.finish(), "E");
}

TEST(StopStrings, PassedTextNeverEndsTheOutput) {
    StopStrings stops({"ab"}, false);
    EXPECT_EQ(stops.pass("ab"), "ab");
    EXPECT_EQ(stops.pass("a"), "a");
    EXPECT_EQ(stops.push("b").text, "b");
    EXPECT_EQ(stops.push("ab").matched, "ab");
}

}  // namespace
}  // namespace aerie
