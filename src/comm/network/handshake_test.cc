// What the socket between two hosts tells of how its other end came to be closed.
#include "comm/network/handshake.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace aerie::comm {
namespace {

constexpr int kLimitMs = 5000;

// Connects and says who it is; the end that listens, once it has heard that.
void greet(Connection& visitor) {
    visitor.say({.answer = Answer::kHello, .from_node = 1, .from_epoch = 1});
    for (int i = 0; i < kLimitMs && !*visitor.flush(); ++i) usleep(1000);
}

Connection heard(Listener& listener) {
    for (int i = 0; i < kLimitMs; ++i, usleep(1000)) {
        auto connection = listener.accept();
        if (!connection) continue;
        for (int n = 0; n < kLimitMs; ++n, usleep(1000)) {
            auto greeting = connection->hear();
            EXPECT_TRUE(greeting.ok()) << greeting.message();
            if (!greeting.ok() || *greeting) break;
        }
        return std::move(*connection);
    }
    ADD_FAILURE() << "nobody has come";
    return {};
}

class Handshake : public testing::Test {
  protected:
    void SetUp() override { ASSERT_TRUE(listener_.open("127.0.0.1", 0, 0).ok()); }
    Listener listener_;
};

TEST_F(Handshake, WhoLeavesInOrderSaysFarewell) {
    auto visitor = Connection::connect_to(listener_.address());
    ASSERT_TRUE(visitor.ok()) << visitor.message();
    greet(*visitor);
    Connection here = heard(listener_);
    EXPECT_TRUE(here.same_machine());
    EXPECT_FALSE(here.ended());
    visitor->end_own_side();
    EXPECT_TRUE(here.wait_for_end(kLimitMs) || here.wait_for_end(kLimitMs));
    EXPECT_TRUE(here.said_farewell());
    EXPECT_FALSE(here.process_ended(0));  // it is this process
}

TEST_F(Handshake, WhoIsKilledDoesNotAndItsProcessIsSeenToEnd) {
    const pid_t child = fork();
    if (child == 0) {
        auto visitor = Connection::connect_to(listener_.address());
        if (!visitor.ok()) _exit(1);
        greet(*visitor);
        for (;;) pause();
    }
    Connection here = heard(listener_);
    EXPECT_TRUE(here.process_watched());
    EXPECT_FALSE(here.process_ended(50));
    EXPECT_FALSE(here.ended());
    kill(child, SIGKILL);
    EXPECT_TRUE(here.process_ended(kLimitMs));
    EXPECT_TRUE(here.wait_for_end(kLimitMs));
    EXPECT_FALSE(here.said_farewell());
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
}

}  // namespace
}  // namespace aerie::comm
