// A server whose handler the tests know, and its clients.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "http/server.h"
#include "http/testing/test_client.h"

namespace aerie::http {

// Answers by path. "/hold" keeps its Responder in `held` until the test does something with it.
class ServerTest : public ::testing::Test {
  protected:
    void start(ServerOptions options = {}) {
        auto server = Server::start(
            options, [this](Request request, Responder responder) { handle(request, responder); },
            [](int, std::string_view path, const std::string& message) {
                return ErrorBody{"text/plain", std::string(path) + ": " + message};
            });
        ASSERT_TRUE(server.ok()) << server.message();
        server_ = std::move(*server);
    }
    void TearDown() override {
        held_.clear();
        server_.reset();
    }

    void handle(Request& request, Responder responder) {
        if (request.path == "/hold") {
            responder.on_disconnect([this] { disconnects_.fetch_add(1); });
            std::lock_guard lock(mutex_);
            held_.push_back(responder);
            changed_.notify_all();
        } else if (request.path == "/drop") {
        } else if (request.path == "/drop-stream") {
            responder.start_stream(200, "text/plain");
            responder.write("part");
        } else if (request.path == "/stream") {
            std::thread([responder]() mutable {
                responder.start_stream(200, "text/event-stream");
                for (const char* piece : {"one ", "two ", "three"}) responder.write(piece);
                responder.finish();
            }).detach();
        } else {
            responder.send(200, "text/plain",
                           request.method + " " + request.path + "?" + request.query + " [" +
                               std::string(request.header("X-Test")) + "] " + request.body);
        }
    }
    Responder held(size_t index = 0) {
        std::unique_lock lock(mutex_);
        const bool come =
            changed_.wait_for(lock, std::chrono::seconds(5), [&] { return held_.size() > index; });
        EXPECT_TRUE(come);
        return held_.at(index);
    }
    bool wait_disconnects(int count, double limit_s = 5) {
        const TimePoint deadline = after(limit_s);
        while (disconnects_ < count && Clock::now() < deadline) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        return disconnects_ == count;
    }
    TestClient& client() { return clients_.emplace_back(server_->port()); }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Responder> held_;
    std::atomic<int> disconnects_{0};
    std::unique_ptr<Server> server_;
    std::deque<TestClient> clients_;
};

}  // namespace aerie::http
