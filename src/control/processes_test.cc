// The hub over gRPC with real host processes under the supervisor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <thread>

#include "control/grpc_transport.h"
#include "control/hub.h"
#include "control/supervisor.h"
#include "control/testing/fake_host.h"
#include "control/testing/token_log.h"

namespace aerie::control {
namespace {

Request request(RequestId id, std::vector<int32_t> prompt) {
    Request made;
    made.id = id;
    made.prompt = std::move(prompt);
    return made;
}

template <typename Done>
bool eventually(Done done) {
    for (const TimePoint limit = after(30); Clock::now() < limit;) {
        if (done()) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
}

// A launcher: hub, server and supervisor over three host processes.
class Launcher : public SupervisorEvents {
  public:
    explicit Launcher(HubOptions options = {}) {
        options.identity = {kFakeVersion, kFakeConfigFingerprint, kFakeModelFingerprint};
        hub = std::make_unique<Hub>(placement, options);
        hub->set_sink([this](std::vector<TokenOut> tokens) { log.take(tokens); });
        hub->on_lost([this](int node, uint32_t epoch, const std::string&) {
            supervisor->kill(node, epoch, 0.1);
        });
        auto listening = listen_for_hosts("127.0.0.1:0", *hub);
        server = std::move(listening).value();
        SupervisorOptions supervised;
        for (const int node : {0, 1, 2}) supervised.hosts.push_back({node, hub->label(node)});
        supervised.program = FAKE_HOST_PROGRAM;
        supervised.arguments = [this](int node, uint32_t epoch, int life_fd) {
            return std::vector<std::string>{"fake_host", std::to_string(node), std::to_string(epoch),
                                            std::to_string(life_fd),
                                            fmt::format("127.0.0.1:{}", server->port())};
        };
        supervisor = std::make_unique<Supervisor>(supervised, *this);
    }

    ~Launcher() {
        supervisor->stop(0);  // first: then neither it nor the hub has news for the other
        server.reset();
        hub.reset();
    }

    Status start() {
        supervisor->start();
        return hub->wait_started(60, 60);
    }

    void host_died(const HostDeath& death) override {
        hub->host_died(death.node, death.epoch, death.describe());
    }
    void gave_up(int, const std::string& why) override { hub->fail_start(why); }

    const Placement placement = fake_placement();
    TokenLog log;
    std::unique_ptr<Supervisor> supervisor;
    std::unique_ptr<Hub> hub;
    std::unique_ptr<ControlServer> server;
};

class Processes : public testing::Test {
  protected:
    void SetUp() override {
#ifdef __SANITIZE_THREAD__
        GTEST_SKIP() << "gRPC's libraries are not instrumented: ThreadSanitizer sees races in them";
#endif
    }
};

TEST_F(Processes, ServeAndStopWithoutAProcessLeft) {
    Launcher launcher;
    const Status started = launcher.start();
    ASSERT_TRUE(started.ok()) << started.message();
    ASSERT_TRUE(launcher.hub->add(request(1, {kEcho, 7, 8})).ok());
    EXPECT_EQ(launcher.log.wait_end(1).tokens, (std::vector<int32_t>{7, 8}));
    const std::vector<pid_t> pids = {launcher.supervisor->pid(0), launcher.supervisor->pid(1),
                                     launcher.supervisor->pid(2)};
    launcher.hub->stop_accepting();
    EXPECT_TRUE(launcher.hub->drain(5));
    launcher.supervisor->stop_restarting();
    launcher.hub->shut_down_hosts(10);
    EXPECT_TRUE(launcher.supervisor->stop(10));
    EXPECT_TRUE(launcher.supervisor->all_ended());
    for (const pid_t pid : pids) EXPECT_EQ(kill(pid, 0), -1);
}

TEST_F(Processes, AKilledHostEndsItsRequestsAndIsStartedAgain) {
    Launcher launcher;
    ASSERT_TRUE(launcher.start().ok());
    const pid_t before = launcher.supervisor->pid(1);
    for (uint32_t round = 1; round <= 2; ++round) {
        ASSERT_TRUE(launcher.hub->add(request(round, {kHold, 7})).ok());
        launcher.log.wait_tokens(round, 1);
        ASSERT_EQ(kill(launcher.supervisor->pid(1), SIGKILL), 0);
        const auto entry = launcher.log.wait_end(round);
        EXPECT_EQ(entry.finish, FinishReason::kAbort);
        EXPECT_EQ(entry.error, "host node-1 (decode) died while the request ran");
        ASSERT_TRUE(eventually([&] { return launcher.hub->state().healthy(); }));
    }
    EXPECT_NE(launcher.supervisor->pid(1), before);
    ASSERT_TRUE(launcher.hub->add(request(9, {kEcho, 7})).ok());
    EXPECT_EQ(launcher.log.wait_end(9).finish, FinishReason::kStop);
}

TEST_F(Processes, AStoppedProcessIsFoundByItsHeartbeatAndReplaced) {
    HubOptions options;
    options.heartbeat_timeout_s = 2;
    Launcher launcher(options);
    ASSERT_TRUE(launcher.start().ok());
    ASSERT_TRUE(launcher.hub->add(request(1, {kHold, 7})).ok());
    launcher.log.wait_tokens(1, 1);
    const pid_t stopped = launcher.supervisor->pid(1);
    ASSERT_EQ(kill(stopped, SIGSTOP), 0);
    EXPECT_EQ(launcher.log.wait_end(1).error, "host node-1 (decode) died while the request ran");
    ASSERT_TRUE(eventually([&] {
        return launcher.supervisor->pid(1) != stopped && launcher.hub->state().healthy();
    }));
}

// A launcher in a process of its own: it writes its hosts' pids to the pipe and sleeps.
void run_launcher(int pids_fd) {
    Launcher launcher;
    if (!launcher.start().ok()) _exit(1);
    const pid_t pids[] = {launcher.supervisor->pid(0), launcher.supervisor->pid(1),
                          launcher.supervisor->pid(2)};
    if (write(pids_fd, pids, sizeof pids) != sizeof pids) _exit(1);
    std::this_thread::sleep_for(std::chrono::seconds(100));
    _exit(0);
}

TEST_F(Processes, HostsEndWhenTheirLauncherIsKilled) {
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    // The child of a process with threads may not use gRPC: it becomes a fresh process first.
    const pid_t child = fork();
    if (child == 0) {
        const std::string fd = std::to_string(fds[1]);
        setenv("LAUNCHER_PIDS_FD", fd.c_str(), 1);
        execl("/proc/self/exe", "control_test", "--gtest_filter=LauncherProcess.DISABLED_Runs",
              "--gtest_also_run_disabled_tests", nullptr);
        _exit(1);
    }
    close(fds[1]);
    pid_t pids[3];
    ASSERT_EQ(read(fds[0], pids, sizeof pids), static_cast<ssize_t>(sizeof pids));
    for (const pid_t pid : pids) ASSERT_EQ(kill(pid, 0), 0);
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    // The hosts hold no end of the pipe; they are reaped by init.
    const TimePoint killed = Clock::now();
    for (const pid_t pid : pids) {
        EXPECT_TRUE(eventually([&] { return kill(pid, 0) == -1; })) << pid;
    }
    EXPECT_LT(seconds_since(killed), 5);
    close(fds[0]);
}

// The launcher of the test above; not a test of its own.
TEST(LauncherProcess, DISABLED_Runs) {
    if (const char* fd = std::getenv("LAUNCHER_PIDS_FD")) run_launcher(std::atoi(fd));
}

class RecordedEvents : public SupervisorEvents {
  public:
    void host_died(const HostDeath& death) override {
        std::lock_guard lock(mutex);
        deaths.push_back(death);
    }
    void gave_up(int node, const std::string& why) override {
        std::lock_guard lock(mutex);
        reason = fmt::format("{}: {}", node, why);
    }
    std::mutex mutex;
    std::vector<HostDeath> deaths;
    std::string reason;
};

TEST(Supervisor, GivesUpAfterManyQuickFailures) {
    RecordedEvents events;
    SupervisorOptions options;
    options.hosts = {{3, "node-3 (expert)"}};
    options.program = "/bin/sh";
    options.arguments = [](int, uint32_t epoch, int) {
        return std::vector<std::string>{"sh", "-c", fmt::format("exit {}", epoch)};
    };
    options.first_wait_s = 0.01;
    options.max_quick_failures = 3;
    Supervisor supervisor(options, events);
    supervisor.start();
    ASSERT_TRUE(eventually([&] {
        std::lock_guard lock(events.mutex);
        return !events.reason.empty();
    }));
    ASSERT_TRUE(eventually([&] { return supervisor.all_ended(); }));
    ASSERT_EQ(events.deaths.size(), 3u);
    for (uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(events.deaths[i].epoch, i + 1);
        EXPECT_EQ(events.deaths[i].code, static_cast<int>(i + 1));
        EXPECT_FALSE(events.deaths[i].signaled);
    }
    EXPECT_THAT(events.reason, testing::HasSubstr("3: host node-3 (expert) is not started again: it "
                                                  "died 3 times in a row"));
}

TEST(Supervisor, AProgramThatDoesNotExistIsAnError) {
    RecordedEvents events;
    SupervisorOptions options;
    options.hosts = {{0, "node-0 (prefill)"}};
    options.program = "/nowhere/aerie";
    options.arguments = [](int, uint32_t, int) { return std::vector<std::string>{"aerie"}; };
    Supervisor supervisor(options, events);
    supervisor.start();
    ASSERT_TRUE(eventually([&] {
        std::lock_guard lock(events.mutex);
        return !events.reason.empty();
    }));
    EXPECT_THAT(events.reason, testing::HasSubstr("posix_spawn of /nowhere/aerie"));
}

TEST(Supervisor, TheChildHasNoOtherDescriptor) {
    RecordedEvents events;
    SupervisorOptions options;
    options.hosts = {{0, "node-0 (prefill)"}};
    options.program = "/bin/sh";
    options.arguments = [](int, uint32_t, int) {
        // ls itself opens one more to read the folder.
        return std::vector<std::string>{"sh", "-c", "exit $(ls /proc/self/fd | wc -l)"};
    };
    options.max_quick_failures = 1;
    int extra[2];
    ASSERT_EQ(pipe(extra), 0);
    Supervisor supervisor(options, events);
    supervisor.start();
    ASSERT_TRUE(eventually([&] {
        std::lock_guard lock(events.mutex);
        return !events.deaths.empty();
    }));
    EXPECT_EQ(events.deaths[0].code, 5);
    close(extra[0]);
    close(extra[1]);
}

}  // namespace
}  // namespace aerie::control
