#include "app/bench_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aerie::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(SseParser, EventsAreTheSameHoweverTheBytesAreCut) {
    const std::string stream =
        "data: one\n\n: a comment\r\n\r\nevent: x\ndata:two\r\ndata: lines\r\n\r\nid: 7\n\n"
        "data: [DONE]\n\ndata: unfinished\n";
    for (size_t size = 1; size <= stream.size(); ++size) {
        SseParser parser;
        std::vector<std::string> events;
        for (size_t at = 0; at < stream.size(); at += size) {
            parser.feed(std::string_view(stream).substr(at, size), events);
        }
        EXPECT_THAT(events, ElementsAre("one", "two\nlines", "[DONE]")) << size;
    }
}

std::string event(const std::string& json) { return "data: " + json + "\n\n"; }

TEST(CompletionStream, CountsTokenIdsAndNotChunks) {
    CompletionStream stream;
    EXPECT_EQ(stream.feed(event(R"({"choices":[{"text":"a","token_ids":[5,6]}]})")), 2);
    EXPECT_EQ(stream.feed(event(R"({"choices":[{"text":"","token_ids":[7]}]})")), 1);
    const std::string last = R"({"choices":[{"token_ids":[],"finish_reason":"length"}]})";
    EXPECT_EQ(stream.feed(event(last)), 0);
    EXPECT_EQ(stream.why_incomplete(3), "the stream ended before [DONE]");
    EXPECT_EQ(stream.feed("data: [DONE]\n\n"), 0);
    EXPECT_TRUE(stream.has_token_ids());
    EXPECT_EQ(stream.why_incomplete(3), "");
    EXPECT_EQ(stream.why_incomplete(4), "3 tokens came, 4 were asked for (finish_reason length)");
}

TEST(CompletionStream, CountsChunksWithTextWhereThereAreNoIds) {
    CompletionStream stream;
    EXPECT_EQ(stream.feed(event(R"({"choices":[{"text":"ab"}]})") +
                          event(R"({"choices":[{"text":""}]})") +
                          event(R"({"choices":[{"text":"c"}]})")), 2);
    stream.feed(event(R"({"choices":[],"usage":{"completion_tokens":3}})") + event("[DONE]"));
    EXPECT_FALSE(stream.has_token_ids());
    EXPECT_EQ(stream.why_incomplete(3), "") << "usage knows better than the chunks";
    EXPECT_NE(stream.why_incomplete(2), "");
}

TEST(CompletionStream, ErrorsInTheStreamAreFailures) {
    CompletionStream stream;
    stream.feed(event(R"({"choices":[{"token_ids":[5]}]})") +
                event(R"({"error":{"message":"node-1 died"},"object":"error"})") + event("[DONE]"));
    EXPECT_EQ(stream.why_incomplete(1), "error event: node-1 died");
    CompletionStream broken;
    broken.feed(event("{oops"));
    EXPECT_EQ(broken.why_incomplete(1), "an event that is not JSON: {oops");
    CompletionStream empty;
    empty.feed(event("[DONE]"));
    EXPECT_EQ(empty.why_incomplete(1), "the stream brought no token");
}

TEST(ErrorMessage, IsFoundInEveryForm) {
    EXPECT_EQ(error_message(R"({"error":{"message":"m","type":"t"}})"), "m");
    EXPECT_EQ(error_message(R"({"object":"error","message":"m"})"), "m");
    EXPECT_EQ(error_message(R"({"detail":"m"})"), "m");
    EXPECT_EQ(error_message("Bad Gateway\n"), "Bad Gateway");
    EXPECT_EQ(error_message(std::string(1000, 'x')).size(), 200u);
}

}  // namespace
}  // namespace aerie::bench
