// Clients that go away, end their side, or do not read.
#include "http/testing/server_fixture.h"

namespace aerie::http {
namespace {

using testing::HasSubstr;

TEST_F(ServerTest, NoticesAClientThatGoesAway) {
    start();
    for (const bool streaming : {false, true}) {
        disconnects_ = 0;
        auto& c = client();
        c.send("GET /hold HTTP/1.1\r\n\r\n");
        Responder responder = held();
        if (streaming) {
            responder.start_stream(200, "text/plain");
            EXPECT_TRUE(responder.write("x"));
            EXPECT_TRUE(c.receive_until("x"));
        }
        c.close();
        EXPECT_TRUE(wait_disconnects(1)) << streaming;
        EXPECT_FALSE(responder.write("y"));
        std::lock_guard lock(mutex_);
        held_.clear();
    }
}

TEST_F(ServerTest, AnswersAClientThatHasEndedItsSide) {
    start();
    for (const char* version : {"1.1", "1.0"}) {
        for (const bool streaming : {false, true}) {
            // Without the 100 it cannot be told here which comes first.
            if (streaming && std::string(version) == "1.0") continue;
            auto& c = client();
            c.send(std::string("GET /hold HTTP/") + version + "\r\n\r\n");
            c.end_sending();
            Responder responder = held();
            if (std::string(version) == "1.1") {
                EXPECT_TRUE(c.receive_until("100 Continue\r\n\r\n"));
            }
            if (streaming) {
                responder.start_stream(200, "text/plain");
                EXPECT_TRUE(responder.write("some"));
                EXPECT_TRUE(c.receive_until("some"));
                EXPECT_TRUE(responder.write("more"));
                responder.finish();
            } else {
                responder.send(200, "text/plain", "somemore");
            }
            EXPECT_TRUE(c.receive_end());
            EXPECT_THAT(c.received(), HasSubstr("more")) << version << streaming;
            std::lock_guard lock(mutex_);
            held_.clear();
        }
    }
    EXPECT_EQ(disconnects_, 0);
    // Pipelined requests too.
    auto& c = client();
    c.send("GET /echo HTTP/1.1\r\n\r\nGET /echo HTTP/1.1\r\n\r\n");
    c.end_sending();
    EXPECT_TRUE(c.receive_end());
    EXPECT_THAT(c.received(), testing::ContainsRegex("200 OK(.|\n)*200 OK"));
}

TEST_F(ServerTest, SaysNothingOfADisconnectAfterTheAnswer) {
    start();
    auto& c = client();
    c.send("GET /hold HTTP/1.1\r\n\r\n");
    held().send(200, "text/plain", "done");
    EXPECT_EQ(c.reply().body, "done");
    c.close();
    EXPECT_FALSE(wait_disconnects(1, 0.1));
}

TEST_F(ServerTest, TellsLateHandlersThatTheClientHasGone) {
    start();
    auto& c = client();
    c.send("GET /hold HTTP/1.1\r\n\r\n");
    Responder responder = held();
    c.close();
    ASSERT_TRUE(wait_disconnects(1));
    bool told = false;
    responder.on_disconnect([&] { told = true; });
    EXPECT_TRUE(told);
}

TEST_F(ServerTest, AnAnswerThatNobodyGivesIsA500OrACut) {
    start();
    auto& c = client();
    EXPECT_EQ(c.get("/drop").status, 500);
    c.send("GET /drop-stream HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(c.receive_end());
    EXPECT_THAT(c.received(), testing::Not(HasSubstr("\r\n0\r\n")));
}

TEST_F(ServerTest, CutsOffASlowReader) {
    ServerOptions options;
    options.max_unsent_bytes = 1 << 20;
    start(options);
    TestClient& c = clients_.emplace_back(server_->port(), 4096);
    c.send("GET /hold HTTP/1.1\r\n\r\n");
    Responder responder = held();
    responder.start_stream(200, "text/plain");
    int num_written = 0;
    // Slowly enough for the first write to be stuck when the limit is passed.
    while (num_written < 1000 && responder.write(std::string(64 << 10, 'x'))) {
        ++num_written;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_LT(num_written, 1000);
    EXPECT_TRUE(wait_disconnects(1));
}

TEST_F(ServerTest, AReaderGetsAPieceThatIsLargerThanTheLimit) {
    ServerOptions options;
    options.max_unsent_bytes = 1000;
    start(options);
    auto& c = client();
    c.send("GET /hold HTTP/1.1\r\n\r\n");
    Responder responder = held();
    responder.start_stream(200, "text/plain");
    const std::string large(1 << 20, 'x');
    EXPECT_TRUE(responder.write(large));
    EXPECT_TRUE(responder.write("y"));
    responder.finish();
    EXPECT_EQ(c.reply().body, large + "y");
}

TEST_F(ServerTest, CutsOffAReaderThatTakesNothing) {
    ServerOptions options;
    options.write_timeout_s = 0.1;
    options.max_unsent_bytes = 64 << 20;
    start(options);
    TestClient& c = clients_.emplace_back(server_->port(), 4096);
    c.send("GET /hold HTTP/1.1\r\n\r\n");
    Responder responder = held();
    responder.start_stream(200, "text/plain");
    responder.write(std::string(32 << 20, 'x'));
    EXPECT_TRUE(wait_disconnects(1));
}

}  // namespace
}  // namespace aerie::http
