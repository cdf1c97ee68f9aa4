#include "app/bench_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "app/bench_server.h"
#include "app/bench_stats.h"
#include "base/clock.h"
#include "http/server.h"

namespace aerie::bench {
namespace {

using testing::Each;
using testing::HasSubstr;

// A server of the protocol that answers every completion at once, in the way the test asks for.
class BenchLoad : public testing::Test {
  protected:
    enum class Answer { kWhole, kWithoutIds, kShort, kErrorEvent, kCut, kRefused, kSilent, kSlow };

    void start(Answer answer) {
        answer_ = answer;
        auto server = http::Server::start(
            {}, [this](http::Request request, http::Responder responder) {
                handle(request, std::move(responder));
            },
            [](int, std::string_view, const std::string& message) {
                return http::ErrorBody{"text/plain", message};
            });
        ASSERT_TRUE(server.ok()) << server.message();
        server_ = *std::move(server);
    }
    void TearDown() override {
        held_.clear();
        server_.reset();
    }

    void handle(const http::Request& request, http::Responder responder) {
        if (request.path == "/v1/models") {
            return responder.send(200, "application/json", R"({"data":[{"id":"demo"}]})");
        }
        if (request.path != "/v1/completions") return responder.send(404, "text/plain", "no");
        most_connections_ = std::max(most_connections_.load(), server_->num_connections());
        auto body = Json::parse(request.body);
        if (!body) return responder.send(400, "text/plain", body.message());
        complete(*body, std::move(responder));
        std::lock_guard lock(mutex_);
        bodies_.push_back(*body);
    }

    void complete(const Json& body, http::Responder responder) {
        if (answer_ == Answer::kRefused) {
            return responder.send(503, "application/json", R"({"error":{"message":"busy"}})");
        }
        if (answer_ == Answer::kSilent) {
            std::lock_guard lock(mutex_);
            return held_.push_back(responder);
        }
        if (answer_ == Answer::kSlow) return std::thread(write_slowly, responder).detach();
        responder.start_stream(200, "text/event-stream");
        const int64_t wanted = body["max_tokens"].as_int();
        const int64_t given = answer_ == Answer::kShort ? wanted - 1 : wanted;
        for (int64_t i = 0; i < given; ++i) {
            responder.write(answer_ == Answer::kWithoutIds
                                ? R"(data: {"choices":[{"text":"x"}]})"
                                : R"(data: {"choices":[{"text":"","token_ids":[9]}]})");
            responder.write("\n\n");
        }
        if (answer_ == Answer::kCut) return;  // the last Responder goes: the connection is cut
        if (answer_ == Answer::kErrorEvent) {
            responder.write("data: {\"error\":{\"message\":\"node-1 died\"}}\n\n");
        }
        responder.write("data: [DONE]\n\n");
        responder.finish();
    }

    // Five tokens, with time between them.
    static void write_slowly(http::Responder responder) {
        responder.start_stream(200, "text/event-stream");
        for (int i = 0; i < 5; ++i) {
            responder.write("data: {\"choices\":[{\"text\":\"\",\"token_ids\":[9]}]}\n\n");
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        responder.write("data: [DONE]\n\n");
        responder.finish();
    }

    Endpoint endpoint() const { return {"127.0.0.1", server_->port()}; }
    static LoadShape shape() {
        return {.requests = 10, .concurrency = 3, .prompt_len = 20, .output_len = 5, .seed = 1,
                .warmup = 0, .timeout_s = 20};
    }
    std::vector<std::string> failures(const LoadShape& shape) {
        auto result = run_load(endpoint(), shape);
        EXPECT_TRUE(result.ok()) << result.message();
        std::vector<std::string> failures;
        if (!result) return failures;
        for (const RequestRecord& record : result->requests) failures.push_back(record.failure);
        EXPECT_EQ(failures.size(), static_cast<size_t>(shape.requests));
        return failures;
    }

    Answer answer_ = Answer::kWhole;
    std::atomic<int> most_connections_{0};
    std::mutex mutex_;
    std::vector<Json> bodies_;
    std::vector<http::Responder> held_;
    std::unique_ptr<http::Server> server_;
};

TEST_F(BenchLoad, RunsAllRequestsOnAsManyConnectionsAsStreams) {
    start(Answer::kWhole);
    LoadShape load = shape();
    load.warmup = 2;
    auto result = run_load(endpoint(), load);
    ASSERT_TRUE(result.ok()) << result.message();
    const Summary summary = summarize(*result, load);
    EXPECT_EQ(summary.num_failed, 0) << failure_lines(summary);
    EXPECT_TRUE(summary.counted_by_ids);
    EXPECT_NEAR(summary.output_tokens_per_s * summary.duration_s, 50, 1e-6);
    // The warm-up's connections and that for the model's name may not have been seen closed yet.
    EXPECT_LE(most_connections_, 3 + 2 + 1);
    ASSERT_EQ(bodies_.size(), 12u);
    const Json& body = bodies_.back();
    EXPECT_EQ(body["model"], Json("demo"));
    EXPECT_EQ(body["temperature"], Json(0));
    EXPECT_EQ(body["ignore_eos"], Json(true));
    EXPECT_EQ(body["stream"], Json(true));
    EXPECT_EQ(body["return_token_ids"], Json(true));
    EXPECT_EQ(body["prompt"].as_array().size(), 20u);
    for (size_t i = 0; i < bodies_.size(); ++i) {
        for (size_t j = 0; j < i; ++j) EXPECT_NE(bodies_[i]["prompt"], bodies_[j]["prompt"]);
    }
}

TEST_F(BenchLoad, CountsChunksWhereThereAreNoIds) {
    start(Answer::kWithoutIds);
    auto result = run_load(endpoint(), shape());
    ASSERT_TRUE(result.ok()) << result.message();
    EXPECT_FALSE(result->counted_by_ids);
    EXPECT_EQ(summarize(*result, shape()).num_failed, 0);
}

TEST_F(BenchLoad, TokensArriveWhenTheyAreSentAndNotAtTheEnd) {
    start(Answer::kSlow);
    LoadShape load = shape();
    load.requests = 3;
    auto result = run_load(endpoint(), load);
    ASSERT_TRUE(result.ok()) << result.message();
    for (const RequestRecord& record : result->requests) {
        EXPECT_EQ(record.failure, "");
        EXPECT_GT(record.arrivals.size(), 1u);
    }
}

TEST_F(BenchLoad, EveryWayToFailIsTold) {
    const struct {
        Answer answer;
        std::string failure;
    } cases[] = {
        {Answer::kShort, "4 tokens came, 5 were asked for (finish_reason none)"},
        {Answer::kErrorEvent, "error event: node-1 died"},
        {Answer::kCut, "receive: "},
        {Answer::kRefused, "HTTP 503: busy"},
        {Answer::kSilent, "timed out after 0.2 s"},
    };
    for (const auto& [answer, failure] : cases) {
        start(answer);
        LoadShape load = shape();
        if (answer == Answer::kSilent) load.requests = 3, load.timeout_s = 0.2;
        load.model = "demo";
        EXPECT_THAT(failures(load), Each(HasSubstr(failure)));
        TearDown();
    }
}

TEST_F(BenchLoad, AFailedWarmupEndsIt) {
    start(Answer::kRefused);
    LoadShape load = shape();
    load.warmup = 1;
    auto result = run_load(endpoint(), load);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.message(), "warm-up: HTTP 503: busy");
}

TEST_F(BenchLoad, AConnectionThatTheServerClosedWhileIdleIsMadeAgain) {
    answer_ = Answer::kWhole;
    auto server = http::Server::start(
        {.idle_timeout_s = 0.1}, [this](http::Request request, http::Responder responder) {
            handle(request, std::move(responder));
        },
        [](int, std::string_view, const std::string& message) {
            return http::ErrorBody{"text/plain", message};
        });
    ASSERT_TRUE(server.ok()) << server.message();
    server_ = *std::move(server);
    LoadShape load = shape();
    load.requests = 3;
    load.concurrency = 1;
    load.rate = 2;
    const TimePoint begin = Clock::now();
    EXPECT_THAT(failures(load), Each(""));
    EXPECT_GE(seconds_since(begin), 1.0) << "the third starts after 2 / rate";
}

TEST(BenchLoadAlone, NobodyListens) {
    auto port = free_port();
    ASSERT_TRUE(port.ok());
    auto result = run_load({"127.0.0.1", *port}, {});
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.message(),
              fmt::format("GET http://127.0.0.1:{}/v1/models: connect: Connection refused", *port));
}

TEST(ServerProcess, ThatEndsEarlyShowsItsLastLines) {
    auto server = ServerProcess::start({"/bin/sh", "-c", "echo broken config >&2; exit 3"});
    ASSERT_TRUE(server.ok()) << server.message();
    auto port = free_port();
    ASSERT_TRUE(port.ok());
    const Status status = (*server)->wait_healthy({"127.0.0.1", *port}, 30);
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.message(), HasSubstr("ended with status 3 before it was healthy"));
    EXPECT_THAT(status.message(), HasSubstr("broken config"));
}

TEST(ServerProcess, StopWantsStatusZero) {
    const struct {
        std::string script, message;
    } cases[] = {{"trap 'exit 0' TERM; ", ""},
                 {"trap 'exit 4' TERM; ", "ended with status 4, expected 0"},
                 {"", "was ended by signal 15, expected 0"},
                 {"trap '' TERM; ", "still runs 0.3 s after SIGTERM"}};
    for (const auto& [script, message] : cases) {
        const std::string ready = fmt::format("{}/ready-{}", testing::TempDir(), getpid());
        auto server = ServerProcess::start(
            {"/bin/sh", "-c", script + "echo > " + ready + "; while :; do sleep 0.05; done"});
        ASSERT_TRUE(server.ok()) << server.message();
        const TimePoint limit = after(10);
        while (access(ready.c_str(), F_OK) != 0 && Clock::now() < limit) {
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        unlink(ready.c_str());
        const Status status = (*server)->stop(message.find("still") == 0 ? 0.3 : 30);
        EXPECT_EQ(status.ok(), message.empty());
        EXPECT_THAT(status ? "" : status.message(), HasSubstr(message));
    }
}

}  // namespace
}  // namespace aerie::bench
