// Peers in processes of their own that are killed, stopped or restarted in the middle of
// everything. The peer is this binary, started again for its disabled test UcxPeer.Run.
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "comm/fabric_contract.h"

namespace aerie::comm {
namespace {

constexpr size_t kSmall = 3000, kLarge = 1 << 20;  // copied by the transport; fetched

std::unique_ptr<Fabric> host(int node, uint32_t epoch, const std::string& transports) {
    auto fabric = make_ucx_fabric({.node = node, .epoch = epoch, .transports = transports});
    EXPECT_TRUE(fabric.ok()) << fabric.message();
    return std::move(*fabric);
}

// Sends to a node as long as it is connected, with at most 8 messages under way.
void send_all_the_time(Fabric& from, int to, size_t bytes, std::atomic<int>& pending) {
    const auto payload = pattern(bytes, 1);
    while (from.send({to, 0}, with_payload("m", payload, &pending)).ok()) {
        for (int i = 0; i < 5000 && pending >= 8; ++i) usleep(1000);
        if (pending >= 8) return;  // the test fails on the counter
    }
    for (int i = 0; i < 5000 && pending != 0; ++i) usleep(1000);
}

// A peer process, node 1.
class PeerProcess {
  public:
    // bytes: of the messages that it sends, 0: it only receives.
    PeerProcess(uint32_t epoch, const std::string& transports, size_t bytes, const Fabric& to) {
        const std::string variables[] = {
            "AERIE_PEER_EPOCH=" + std::to_string(epoch), "AERIE_PEER_TRANSPORTS=" + transports,
            "AERIE_PEER_BYTES=" + std::to_string(bytes), "AERIE_PEER_ADDRESS=" + to.address()};
        std::vector<char*> environment;
        for (const auto& variable : variables)
            environment.push_back(const_cast<char*>(variable.c_str()));
        for (char** variable = environ; *variable != nullptr; ++variable)
            environment.push_back(*variable);
        environment.push_back(nullptr);
        std::string arguments[] = {"comm_test", "--gtest_also_run_disabled_tests",
                                   "--gtest_brief=1", "--gtest_filter=UcxPeer.DISABLED_Run"};
        char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(),
                        arguments[3].data(), nullptr};
        const int status =
            posix_spawn(&pid_, "/proc/self/exe", nullptr, nullptr, argv, environment.data());
        EXPECT_EQ(status, 0) << strerror(status);
    }
    ~PeerProcess() { kill(); }

    pid_t pid() const { return pid_; }
    void stop() { ::kill(pid_, SIGSTOP); }
    void kill() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        int status = 0;
        waitpid(std::exchange(pid_, 0), &status, 0);
        EXPECT_TRUE(WIFSIGNALED(status)) << "the peer ended by itself, status " << status;
    }

  private:
    pid_t pid_ = 0;
};

TEST(UcxPeer, DISABLED_Run) {
    if (getenv("AERIE_PEER_EPOCH") == nullptr) GTEST_SKIP() << "started by PeerDeath only";
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Inbox inbox;
    inbox.keep = false;
    auto self = host(1, atoi(getenv("AERIE_PEER_EPOCH")), getenv("AERIE_PEER_TRANSPORTS"));
    self->open(0, &inbox);
    const Status status = self->set_peer(0, 1, getenv("AERIE_PEER_ADDRESS"));
    ASSERT_TRUE(status.ok()) << status.message();
    std::atomic<int> pending{0};
    const size_t bytes = atol(getenv("AERIE_PEER_BYTES"));
    if (bytes > 0) send_all_the_time(*self, 0, bytes, pending);
    for (;;) pause();
}

class PeerDeath : public testing::TestWithParam<const char*> {
  protected:
    PeerDeath() { inbox_.keep = false; }

    // Whatever was under way has come to an end, and other peers are not concerned.
    void expect_all_ended(const std::atomic<int>& pending) {
        EXPECT_TRUE(eventually([&] { return self_->peer_epoch(1) == 0; }));
        EXPECT_FALSE(self_->send({1, 0}, text("x")).ok());
        EXPECT_TRUE(eventually([&] { return pending == 0; })) << pending;
        EXPECT_TRUE(eventually(
            [&] { return inbox_.num_accepted == inbox_.num_delivered + inbox_.num_failed; }));
        if (!other_) {
            other_ = host(2, 1, GetParam());
            other_->open(0, &others_inbox_);
            const Status status = self_->set_peer(2, 1, other_->address());
            ASSERT_TRUE(status.ok()) << status.message();
        }
        const size_t before = others_inbox_.count();
        EXPECT_TRUE(self_->send({2, 0}, text("still there?")).ok());
        EXPECT_TRUE(others_inbox_.wait(before + 1));
    }

    Inbox inbox_, others_inbox_;
    std::unique_ptr<Fabric> self_ = host(0, 1, GetParam());
    std::unique_ptr<Fabric> other_;
};

TEST_P(PeerDeath, KilledWhileBothSend) {
    self_->open(0, &inbox_);
    std::mt19937 random(std::random_device{}());
    uint32_t epoch = 0;
    for (const size_t mine : {kSmall, kLarge}) {
        for (const size_t theirs : {kSmall, kLarge, size_t{0}}) {
            SCOPED_TRACE(fmt::format("sending {} bytes, receiving {}", mine, theirs));
            const size_t before = inbox_.count();
            PeerProcess peer(++epoch, GetParam(), theirs, *self_);
            ASSERT_TRUE(eventually([&] { return self_->peer_epoch(1) == epoch; }));
            std::atomic<int> pending{0};
            std::thread sender([&] { send_all_the_time(*self_, 1, mine, pending); });
            EXPECT_TRUE(theirs == 0 || inbox_.wait(before + 10));
            usleep(random() % 8000);
            peer.kill();
            sender.join();
            expect_all_ended(pending);
        }
    }
}

TEST_P(PeerDeath, AStoppedPeerCanBeDroppedAndItsPortsClosed) {
    self_->open(0, &inbox_);
    PeerProcess peer(1, GetParam(), kLarge, *self_);
    EXPECT_TRUE(inbox_.wait(10));
    peer.stop();
    std::atomic<int> pending{0};
    const auto small = pattern(kSmall, 1), large = pattern(kLarge, 2);
    for (int i = 0; i < 1000; ++i) {  // more than its queue takes
        const auto& payload = i % 10 == 0 ? large : small;
        EXPECT_TRUE(self_->send({1, 0}, with_payload("m", payload, &pending)).ok());
    }
    EXPECT_GT(pending, 0);
    self_->close(0);
    self_->drop_peer(1, 1);
    EXPECT_EQ(pending, 0);
    expect_all_ended(pending);
}

TEST_P(PeerDeath, AKilledPeerLeavesNoSharedMemory) {
    // Lines of /proc/sysvipc/shm: key shmid perms size cpid ...
    const auto segments_of = [](pid_t pid) {
        std::ifstream file("/proc/sysvipc/shm");
        int count = 0;
        for (std::string line; std::getline(file, line);) {
            std::istringstream fields(line);
            std::string key, id, permissions, size, creator;
            fields >> key >> id >> permissions >> size >> creator;
            count += creator == std::to_string(pid);
        }
        return count;
    };
    self_->open(0, &inbox_);
    PeerProcess peer(1, GetParam(), kSmall, *self_);
    EXPECT_TRUE(inbox_.wait(10));
    const pid_t pid = peer.pid();
    EXPECT_EQ(segments_of(pid) > 0, std::string(GetParam()) != "tcp");
    peer.kill();
    EXPECT_TRUE(eventually([&] { return segments_of(pid) == 0; }));
}

TEST_P(PeerDeath, AnIdlePairUsesNoCpu) {
    PeerProcess peer(1, GetParam(), 0, *self_);
    ASSERT_TRUE(eventually([&] { return self_->peer_epoch(1) == 1; }));
    EXPECT_TRUE(self_->send({1, 0}, text("x")).ok());
    const auto cpu_s = [] {
        rusage usage{};
        getrusage(RUSAGE_SELF, &usage);
        return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
               (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
    };
    usleep(50'000);
    const double before = cpu_s();
    usleep(500'000);
    EXPECT_LT(cpu_s() - before, 0.02);
}

INSTANTIATE_TEST_SUITE_P(Ucx, PeerDeath, testing::Values("", "tcp"), [](const auto& info) {
    return *info.param ? info.param : "shared_memory";
});

}  // namespace
}  // namespace aerie::comm
