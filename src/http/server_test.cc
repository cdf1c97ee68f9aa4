#include "http/testing/server_fixture.h"

namespace aerie::http {
namespace {

using testing::HasSubstr;

TEST_F(ServerTest, AnswersAndKeepsTheConnection) {
    start();
    auto& c = client();
    auto reply = c.get("/a%20b%2Fc?x=1&y=%20", "x-test: yes\r\n");
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, "GET /a b/c?x=1&y=%20 [yes] ");
    EXPECT_EQ(reply.header("Connection"), "keep-alive");
    EXPECT_EQ(reply.header("Access-Control-Allow-Origin"), "*");
    EXPECT_THAT(reply.header("Date"), testing::MatchesRegex("..., .. ... .... ..:..:.. GMT"));
    EXPECT_EQ(c.post("/p", "body").body, "POST /p? [] body");
    reply = c.get("/last", "Connection: close\r\n");
    EXPECT_EQ(reply.header("Connection"), "close");
    EXPECT_TRUE(c.receive_end());
}

TEST_F(ServerTest, AnswersPipelinedRequestsInOrder) {
    start();
    auto& c = client();
    std::string all;
    for (int i = 0; i < 50; ++i) {
        all += i % 3 == 0 ? "GET /stream HTTP/1.1\r\n\r\n"
                          : TestClient::post_text("/" + std::to_string(i), std::to_string(i));
    }
    ASSERT_TRUE(c.send(all));
    for (int i = 0; i < 50; ++i) {
        const std::string n = std::to_string(i);
        EXPECT_EQ(c.reply().body, i % 3 == 0 ? "one two three" : "POST /" + n + "? [] " + n);
    }
}

TEST_F(ServerTest, ReadsARequestCutAnywhere) {
    start();
    const std::string chunked =
        "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        "4;name=value\r\nabcd\r\n10\r\n0123456789abcdef\r\n0\r\nTrailer: t\r\n\r\n";
    for (size_t cut = 1; cut < chunked.size(); ++cut) {
        auto& c = client();
        c.send(chunked.substr(0, cut));
        if (cut % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        c.send(chunked.substr(cut));
        ASSERT_EQ(c.reply().body, "POST /c? [] abcd0123456789abcdef") << "cut at " << cut;
        clients_.clear();
    }
}

TEST_F(ServerTest, ReadsALargeBody) {
    start();
    const std::string body(2 << 20, 'x');
    auto& c = client();
    std::thread sender([&] { c.send(TestClient::post_text("/b", body)); });
    const TestReply reply = c.reply();
    sender.join();
    EXPECT_EQ(reply.body.size(), body.size() + std::string("POST /b? [] ").size());
}

TEST_F(ServerTest, ContinuesWhereAsked) {
    start();
    auto& c = client();
    c.send("POST /e HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    ASSERT_TRUE(c.receive_until("\r\n\r\n"));
    EXPECT_EQ(c.received(), "HTTP/1.1 100 Continue\r\n\r\n");
    c.received().clear();
    c.send("body");
    EXPECT_EQ(c.reply().body, "POST /e? [] body");
}

TEST_F(ServerTest, RefusesATooLargeExpectedBodyWithoutContinue) {
    start();
    auto& c = client();
    c.send("POST /e HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n\r\n");
    EXPECT_EQ(c.reply().status, 413);
}

TEST_F(ServerTest, HeadHasTheLengthButNoBody) {
    start();
    auto& c = client();
    c.send("HEAD /h HTTP/1.1\r\n\r\nHEAD /stream HTTP/1.1\r\n\r\nGET /g HTTP/1.1\r\n\r\n");
    EXPECT_EQ(c.reply(true).header("Content-Length"),
              std::to_string(std::string("HEAD /h? [] ").size()));
    EXPECT_EQ(c.reply(true).header("Transfer-Encoding"), "chunked");
    EXPECT_EQ(c.reply().body, "GET /g? [] ");
}

TEST_F(ServerTest, AnswersPreflightsForEveryOrigin) {
    start();
    auto& c = client();
    c.send(
        "OPTIONS /x HTTP/1.1\r\nOrigin: http://a\r\nAccess-Control-Request-Method: POST\r\n"
        "Access-Control-Request-Headers: authorization,x-b\r\n\r\n");
    const TestReply reply = c.reply();
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.header("Access-Control-Allow-Headers"), "authorization,x-b");
    EXPECT_THAT(reply.header("Access-Control-Allow-Methods"), HasSubstr("POST"));
}

TEST_F(ServerTest, StreamsToHttp10WithoutChunks) {
    start();
    auto& c = client();
    c.send("GET /stream HTTP/1.0\r\n\r\n");
    EXPECT_TRUE(c.receive_end());
    EXPECT_THAT(c.received(), testing::EndsWith("\r\n\r\none two three"));
}

TEST_F(ServerTest, RefusesWhatIsOverALimit) {
    ServerOptions options;
    options.max_header_bytes = 1000;
    options.max_headers = 5;
    options.max_url_bytes = 50;
    options.max_body_bytes = 100;
    start(options);
    const std::string long_body(101, 'x');
    const struct {
        std::string text;
        int status;
        const char* message;
    } kCases[] = {
        {TestClient::post_text("/p", long_body), 413,
         "/p: the request body is larger than 100 bytes"},
        {"POST /p HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + long_body +
             "\r\n0\r\n\r\n",
         413, "larger than 100 bytes"},
        {"GET / HTTP/1.1\r\nA: " + std::string(2000, 'a') + "\r\n\r\n", 431, "1000 bytes"},
        {"GET /" + std::string(50, 'u') + " HTTP/1.1\r\n\r\n", 414,
         "the URL has 51 bytes, at most 50 are read (http_max_url_kb)"},
        {"GET / HTTP/1.1\r\nA: " + std::string(2000, 'a'), 431, "1000 bytes"},
        {"GET / HTTP/1.1\r\na: 1\r\nb: 1\r\nc: 1\r\nd: 1\r\ne: 1\r\nf: 1\r\n\r\n", 431,
         "6 headers, at most 5"},
        {"GET /%zz HTTP/1.1\r\n\r\n", 400, "hexadecimal"},
        {"nonsense\r\n\r\n", 400, "not an HTTP/1.1 request"},
        {"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400, ""},
        {"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\nGET /x HTTP/1.1\r\n\r\n", 400,
         "chunked"},
        {"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400, "chunk"},
    };
    for (const auto& test : kCases) {
        TestClient c(server_->port());
        c.send(test.text);
        const TestReply reply = c.reply();
        EXPECT_EQ(reply.status, test.status) << test.text;
        EXPECT_THAT(reply.body, HasSubstr(test.message));
        EXPECT_TRUE(c.receive_end());
    }
}

TEST_F(ServerTest, ClosesWhatTakesTooLong) {
    ServerOptions options;
    options.idle_timeout_s = 0.1;
    start(options);
    TestClient idle(server_->port());
    EXPECT_TRUE(idle.receive_end());
    EXPECT_EQ(idle.received(), "");
    options = {};
    options.header_timeout_s = options.body_timeout_s = 0.1;
    start(options);
    TestClient header(server_->port()), body(server_->port());
    header.send("GET / HT");
    body.send("POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\nab");
    EXPECT_EQ(header.reply().status, 408);
    EXPECT_EQ(body.reply().status, 408);
}

TEST_F(ServerTest, RefusesConnectionsOverTheLimit) {
    ServerOptions options;
    options.max_connections = 2;
    start(options);
    TestClient a(server_->port()), b(server_->port());
    EXPECT_EQ(a.get("/").status, 200);
    EXPECT_EQ(b.get("/").status, 200);
    TestClient c(server_->port());
    EXPECT_EQ(c.reply().status, 503);
    EXPECT_EQ(a.get("/").status, 200);
}

TEST_F(ServerTest, StopLetsRunningRequestsFinish) {
    start();
    auto& running = client();
    auto& idle = client();
    EXPECT_EQ(idle.get("/").status, 200);
    running.send("GET /hold HTTP/1.1\r\n\r\n");
    Responder responder = held();
    std::thread stopper([&] { server_->stop(5); });
    EXPECT_TRUE(idle.receive_end());
    responder.send(200, "text/plain", "late");
    const TestReply reply = running.reply();
    stopper.join();
    EXPECT_EQ(reply.body, "late");
    EXPECT_EQ(reply.header("Connection"), "close");
    EXPECT_EQ(server_->num_connections(), 0);
}

TEST_F(ServerTest, StopCutsOffWhatDoesNotFinish) {
    start();
    auto& c = client();
    c.send("GET /hold HTTP/1.1\r\n\r\n");
    Responder responder = held();
    server_->stop(0.05);
    EXPECT_EQ(disconnects_, 1);
    EXPECT_TRUE(c.receive_end());
    server_.reset();
    responder.send(200, "text/plain", "to nobody");  // outlives the server
}

TEST_F(ServerTest, ManyThreadsAnswerManyClients) {
    ServerOptions options;
    options.io_threads = 2;
    start(options);
    std::vector<std::thread> threads;
    std::atomic<int> good{0};
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            TestClient c(server_->port());
            for (int i = 0; i < 100; ++i) good += c.get("/stream").body == "one two three";
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(good, 400);
}

TEST(ServerStart, SaysWhyItCannotListen) {
    const ErrorFormat format = [](int, std::string_view, const std::string& m) {
        return ErrorBody{"", m};
    };
    auto first = Server::start(
        {}, [](Request, Responder) {}, format);
    ASSERT_TRUE(first.ok());
    ServerOptions options;
    options.port = (*first)->port();
    auto second = Server::start(
        options, [](Request, Responder) {}, format);
    ASSERT_FALSE(second.ok());
    EXPECT_THAT(second.message(), HasSubstr("Address already in use"));
    EXPECT_THAT(second.message(), HasSubstr(std::to_string(options.port)));
}

}  // namespace
}  // namespace aerie::http
