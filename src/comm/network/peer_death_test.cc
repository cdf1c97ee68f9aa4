// Peers in processes of their own that are killed, stopped or restarted in the middle of
// everything. The peer is this binary, started again for its disabled test Peer.Run.
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "comm/fabric_contract.h"
#include "tensor/card.h"

namespace aerie::comm {
namespace {

constexpr size_t kSmall = 3000, kLarge = 1 << 20;  // copied by the transport; fetched

// Of the transports' name: those of a card put and get its memory, and go over these otherwise.
Device device_of(const std::string& transports) {
    return transports.starts_with("card") ? Device::kCuda : Device::kCpu;
}
std::unique_ptr<Fabric> host(int node, uint32_t epoch, const std::string& transports) {
    NetworkOptions options{.node = node, .epoch = epoch};
    const bool gloo = transports.ends_with("gloo");
    if (!gloo && device_of(transports) == Device::kCpu) options.transports = transports;
    auto fabric = gloo ? make_gloo_fabric(options) : make_ucx_fabric(options);
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

constexpr size_t kRegionBytes = 4 << 20;
constexpr size_t kAccesses = ~size_t{0};  // a peer that puts and gets instead of sending

// Lets a node access memory of this host, and accesses that of the node as long as it is connected.
class Accessor {
  public:
    Accessor(Fabric& self, Inbox& inbox, int peer, Device device = Device::kCpu)
        : self_(self), inbox_(inbox), peer_(peer), device_(device) {
        auto own = self.allocate_memory(kRegionBytes, device);
        EXPECT_TRUE(own.ok()) << own.message();
        own_ = *own;
    }
    ~Accessor() { self_.revoke(own_.id); }

    bool begin() {
        const auto* key = reinterpret_cast<const std::byte*>(own_.key.data());
        key_.assign(key, key + own_.key.size());
        const size_t before = inbox_.count();
        if (!self_.send({peer_, 0}, with_payload("key", key_, &pending_)).ok()) return false;
        if (!inbox_.wait(std::max<size_t>(before, 1))) return false;
        const auto bytes = inbox_.take().bytes;
        auto region = self_.attach({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        EXPECT_TRUE(region.ok()) << region.message();
        if (region.ok()) region_ = *region;
        return region.ok();
    }
    // Until the peer is lost; then waits, at most 5 s, for what was under way.
    void run() {
        auto local = pattern(kRegionBytes, 5);
        std::vector<Piece> pieces;
        for (size_t at = 0; at < kRegionBytes; at += 128 << 10)
            pieces.push_back({at, local.data() + at, 64 << 10});
        const auto ended = [this](const Status&) { ++num_ended; };
        Access access = Access::kPut;
        while (self_.transfer(access, region_, pieces, ended).ok()) {
            ++num_begun;
            access = access == Access::kPut ? Access::kGet : Access::kPut;
            for (int i = 0; i < 5000 && num_begun - num_ended >= 4; ++i) usleep(1000);
        }
        for (int i = 0; i < 5000 && (num_begun != num_ended || pending_ != 0); ++i) usleep(1000);
    }
    // While the peer writes.
    std::byte first_byte() const {
        std::byte first;
        if (device_ == Device::kCpu) return reinterpret_cast<std::atomic<std::byte>*>(own_.base)->load();
        copy_to(&first, own_.base, 1);
        return first;
    }
    std::vector<std::byte> read() const {
        std::vector<std::byte> copy(kRegionBytes);
        copy_to(copy.data(), own_.base, kRegionBytes);
        return copy;
    }
    void write(const std::vector<std::byte>& content) const {
        copy_to(own_.base, content.data(), content.size());
    }

    std::atomic<int> num_begun{0}, num_ended{0};

  private:
    void copy_to(void* to, const void* from, size_t bytes) const {
        device_ == Device::kCuda ? card::copy_now(to, from, bytes)
                                 : static_cast<void>(std::memcpy(to, from, bytes));
    }

    Fabric& self_;
    Inbox& inbox_;
    const int peer_;
    const Device device_;
    OwnRegion own_;
    RemoteRegion region_;
    std::vector<std::byte> key_;
    std::atomic<int> pending_{0};
};

// A peer process, node 1.
class PeerProcess {
  public:
    // bytes: of the messages that it sends, 0: it only receives; or kAccesses.
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
                                   "--gtest_brief=1", "--gtest_filter=Peer.DISABLED_Run"};
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

TEST(Peer, DISABLED_Run) {
    if (getenv("AERIE_PEER_EPOCH") == nullptr) GTEST_SKIP() << "started by PeerDeath only";
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Inbox inbox;
    inbox.keep = strtoul(getenv("AERIE_PEER_BYTES"), nullptr, 10) == kAccesses;
    auto self = host(1, atoi(getenv("AERIE_PEER_EPOCH")), getenv("AERIE_PEER_TRANSPORTS"));
    self->open(0, &inbox);
    const Status status = self->set_peer(0, 1, getenv("AERIE_PEER_ADDRESS"));
    ASSERT_TRUE(status.ok()) << status.message();
    std::atomic<int> pending{0};
    const size_t bytes = strtoul(getenv("AERIE_PEER_BYTES"), nullptr, 10);
    if (bytes == kAccesses) {
        Accessor accessor(*self, inbox, 0, device_of(getenv("AERIE_PEER_TRANSPORTS")));
        ASSERT_TRUE(accessor.begin());
        accessor.run();
    } else if (bytes > 0)
        send_all_the_time(*self, 0, bytes, pending);
    for (;;) pause();
}

class PeerDeath : public testing::TestWithParam<const char*> {
  protected:
    PeerDeath() { inbox_.keep = false; }

    void kill_while_both_put_and_get();

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

void PeerDeath::kill_while_both_put_and_get() {
    inbox_.keep = true;
    self_->open(0, &inbox_);
    std::mt19937 random(std::random_device{}());
    for (uint32_t epoch = 1; epoch <= 4; ++epoch) {
        SCOPED_TRACE(epoch);
        Accessor accessor(*self_, inbox_, 1, device_of(GetParam()));
        PeerProcess peer(epoch, GetParam(), kAccesses, *self_);
        ASSERT_TRUE(eventually([&] { return self_->peer_epoch(1) == epoch; }));
        ASSERT_TRUE(inbox_.wait(epoch));  // the peer's key
        ASSERT_TRUE(accessor.begin());
        std::thread access([&] { accessor.run(); });
        EXPECT_TRUE(eventually([&] { return accessor.num_ended > 4; }));
        EXPECT_TRUE(eventually([&] { return accessor.first_byte() == pattern(1, 5)[0]; }));
        usleep(random() % 8000);
        peer.kill();
        EXPECT_TRUE(eventually([&] { return self_->peer_epoch(1) == 0; }));
        self_->drop_peer(1, epoch);
        const std::vector<std::byte> untouched(kRegionBytes, std::byte{0x55});
        accessor.write(untouched);
        access.join();
        usleep(5000);
        EXPECT_TRUE(accessor.read() == untouched);
        EXPECT_EQ(accessor.num_begun, accessor.num_ended);
    }
}

TEST_P(PeerDeath, KilledWhileBothPutAndGet) { kill_while_both_put_and_get(); }

// The peer is another process on the same card.
class CardPeerDeath : public PeerDeath {
    void SetUp() override {
        if (card::count() == 0) GTEST_SKIP() << "no card";
    }
};
TEST_P(CardPeerDeath, KilledWhileBothPutAndGet) { kill_while_both_put_and_get(); }

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

TEST_P(PeerDeath, AStoppedPeerThatPutsAndGetsCanBeDropped) {
    inbox_.keep = true;
    self_->open(0, &inbox_);
    Accessor accessor(*self_, inbox_, 1);
    PeerProcess peer(1, GetParam(), kAccesses, *self_);
    ASSERT_TRUE(inbox_.wait(1));
    ASSERT_TRUE(accessor.begin());
    std::thread access([&] { accessor.run(); });
    EXPECT_TRUE(eventually([&] { return accessor.num_ended > 4; }));
    peer.stop();
    self_->drop_peer(1, 1);  // says in the log that there is no proof, where memory is mapped
    access.join();
    EXPECT_EQ(accessor.num_begun, accessor.num_ended);
    EXPECT_EQ(self_->peer_epoch(1), 0u);
}

// Waiting for the stopped one's proof, this host gives another its own.
TEST_P(PeerDeath, WhoLeavesWhileAStoppedPeerIsDroppedDoesNotWaitForIt) {
    if (*GetParam() != '\0') GTEST_SKIP() << "no memory is mapped";
    self_->open(0, &inbox_);
    other_ = host(2, 1, GetParam());
    ASSERT_TRUE(self_->set_peer(2, 1, other_->address()).ok());
    ASSERT_TRUE(eventually([&] { return other_->peer_epoch(0) == 1; }));
    ASSERT_TRUE(self_->allocate_memory(kSmall).ok());
    ASSERT_TRUE(other_->allocate_memory(kSmall).ok());
    PeerProcess peer(1, GetParam(), kSmall, *self_);
    EXPECT_TRUE(inbox_.wait(10));
    peer.stop();
    std::atomic<bool> dropped{false};
    std::thread dropping([&] {
        self_->drop_peer(1, 1);
        dropped = true;
    });
    EXPECT_TRUE(eventually([&] { return self_->peer_epoch(1) == 0; }));
    usleep(200'000);  // it waits now; its limit of 1 s ends before the other's
    other_->drop_peer(0, 1);
    EXPECT_FALSE(dropped);
    dropping.join();
    EXPECT_EQ(self_->peer_epoch(2), 0u);
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
    EXPECT_EQ(segments_of(pid) > 0, std::string(GetParam()).empty());
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

const auto name_of_peer = [](const auto& info) {
    return *info.param ? info.param : "shared_memory";
};
INSTANTIATE_TEST_SUITE_P(Ucx, PeerDeath, testing::Values("", "tcp"), name_of_peer);
INSTANTIATE_TEST_SUITE_P(Ucx, CardPeerDeath, testing::Values("card"), name_of_peer);
INSTANTIATE_TEST_SUITE_P(Gloo, CardPeerDeath, testing::Values("card_gloo"), name_of_peer);
INSTANTIATE_TEST_SUITE_P(Gloo, PeerDeath, testing::Values("gloo"), name_of_peer);

}  // namespace
}  // namespace aerie::comm
