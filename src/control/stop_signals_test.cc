#include "control/stop_signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "control/queue.h"

namespace aerie::control {
namespace {

// In a fresh process: threads that other tests leave behind do not block the signals.
[[noreturn]] void count_three() {
    block_stop_signals();
    Queue<int> counts;
    bool ok = true;
    {
        StopSignals signals([&](int count) { counts.push(count); });
        ok = ok && signals.count() == 0;
        kill(getpid(), SIGTERM);
        ok = ok && counts.pop(after(10)) == 1;
        kill(getpid(), SIGINT);
        ok = ok && counts.pop(after(10)) == 2;
        signals.raise();
        ok = ok && counts.pop(after(10)) == 3;
        signals.wait();
        ok = ok && signals.count() == 3;
    }
    _exit(ok ? 0 : 1);
}

TEST(StopSignals, EachSignalIsCounted) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(count_three(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace aerie::control
