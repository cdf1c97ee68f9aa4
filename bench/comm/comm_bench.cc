// Messages between two hosts, beside memcpy: within a process, over shared memory and over TCP.
// usage: comm_bench [transports ...]     as UCX_TLS; without: local, the default, tcp
//
// Both hosts run the same steps; over UCX the second one is this program, started again. Each
// figure is the best of several batches.
// - woken: half a ping-pong of 8 KB between two ranks that sleep until their message is there
// - polled: the same, but the ranks look for it all the time (the fabric's thread still sleeps)
// - bandwidth: 8 messages under way, each copied to a place of its own; memcpy: the same copies
// - idle: CPU time of this process over one second in which nothing is sent
#include <fmt/core.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/fabric.h"

namespace aerie::comm {
namespace {

constexpr size_t kPingBytes = 8 << 10;
constexpr std::array<size_t, 3> kSizes{64 << 10, 1 << 20, 16 << 20};
constexpr int kInFlight = 8;
constexpr size_t kRingBytes = kInFlight * (16 << 20);
constexpr int kBatches = 10;  // of each the best counts: the machine is not ours alone
constexpr int kPings = 400;

size_t num_messages(size_t bytes) { return kRingBytes / bytes; }

double cpu_s() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

// One host and its only rank, which listens on port 0.
class Rank : public Receiver {
  public:
    explicit Rank(std::unique_ptr<Fabric> fabric) : fabric_(std::move(fabric)) {
        fabric_->open(0, this);
    }
    ~Rank() override { fabric_->close(0); }
    Fabric& fabric() { return *fabric_; }

    std::byte* accept(const Incoming& message) override {
        return room_.data() + place(num_accepted_++, message.payload_bytes);
    }
    void delivered(const Incoming&, const std::byte*) override {
        ++count_;
        event_.notify();
    }
    void failed(const Incoming&) override {}

    void send(size_t bytes) {
        // What is under way is bounded: the payloads of a ring are not changed while it is read.
        while (pending_ >= kInFlight) std::this_thread::yield();
        const Message message{.header = "",
                              .header_bytes = 0,
                              .payload = payload_.data() + place(num_sent_++, bytes),
                              .payload_bytes = bytes,
                              .pending = &pending_};
        const Status status = fabric_->send({1 - fabric_->node(), 0}, message);
        CHECK(status.ok(), "{}", status.message());
    }
    // Waits for one more message, or `number`.
    void receive(bool polling, size_t number = 1) {
        expected_ += number;
        if (polling) {
            while (count_ < expected_) std::this_thread::yield();
            return;
        }
        for (uint64_t seen = event_.value(); count_ < expected_;)
            seen = event_.wait(seen, after(5));
    }

  private:
    static size_t place(size_t number, size_t bytes) {
        return number % (kRingBytes / bytes) * bytes;
    }
    std::vector<std::byte> room_ = std::vector<std::byte>(kRingBytes, std::byte{1});
    std::vector<std::byte> payload_ = std::vector<std::byte>(kRingBytes, std::byte{2});
    std::atomic<size_t> num_accepted_{0}, count_{0};
    std::atomic<int> pending_{0};
    size_t num_sent_ = 0, expected_ = 0;
    Event event_;
    std::unique_ptr<Fabric> fabric_;
};

struct Figures {
    double woken_us, polled_us;
    std::array<double, kSizes.size()> gb_s;
};

double one_way_us(Rank& rank, bool leads, bool polling) {
    double best = 1e9;
    for (int batch = 0; batch < kBatches; ++batch) {
        const TimePoint start = Clock::now();
        for (int i = 0; i < kPings; ++i) {
            if (leads) rank.send(kPingBytes);
            rank.receive(polling);
            if (!leads) rank.send(kPingBytes);
        }
        best = std::min(best, seconds_since(start) * 1e6 / kPings / 2);
    }
    return best;
}

double bandwidth(Rank& rank, bool leads, size_t bytes) {
    const size_t number = num_messages(bytes);
    double best = 0;
    for (int batch = 0; batch < kBatches; ++batch) {
        const TimePoint start = Clock::now();
        if (leads) {
            for (size_t i = 0; i < number; ++i) rank.send(bytes);
            rank.receive(false);
        } else {
            rank.receive(false, number);
            rank.send(1);
        }
        best = std::max(best, static_cast<double>(number * bytes) / seconds_since(start) / 1e9);
    }
    return best;
}

Figures run_steps(Rank& rank, bool leads) {
    Figures figures{};
    figures.woken_us = one_way_us(rank, leads, false);
    figures.polled_us = one_way_us(rank, leads, true);
    for (size_t i = 0; i < kSizes.size(); ++i) {
        figures.gb_s[i] = bandwidth(rank, leads, kSizes[i]);
    }
    return figures;
}

std::array<double, kSizes.size()> memcpy_gb_s() {
    std::vector<std::byte> from(kRingBytes, std::byte{1}), to(kRingBytes, std::byte{2});
    std::array<double, kSizes.size()> result{};
    for (size_t i = 0; i < kSizes.size(); ++i) {
        for (int batch = 0; batch < kBatches; ++batch) {
            const TimePoint start = Clock::now();
            for (size_t place = 0; place < kRingBytes; place += kSizes[i])
                std::memcpy(to.data() + place, from.data() + place, kSizes[i]);
            result[i] = std::max(result[i], kRingBytes / seconds_since(start) / 1e9);
        }
    }
    return result;
}

double idle_cpu_percent() {
    usleep(100'000);
    const double before = cpu_s();
    usleep(1'000'000);
    return (cpu_s() - before) * 100;
}

void print(const std::string& name, const Figures& f, double idle) {
    const auto copy = memcpy_gb_s();  // now, because the machine is shared
    fmt::print("{:<16}{:>8.1f}{:>9.1f}", name, f.woken_us, f.polled_us);
    for (size_t i = 0; i < kSizes.size(); ++i)
        fmt::print("{:>8.2f} ({:.2f}x)", f.gb_s[i], f.gb_s[i] / copy[i]);
    fmt::print("{:>8.1f} %\n", idle);
}

std::unique_ptr<Fabric> ucx_host(int node, const std::string& transports) {
    auto fabric = make_ucx_fabric({.node = node, .transports = transports});
    CHECK(fabric.ok(), "{}", fabric.message());
    return std::move(*fabric);
}

void connect(Fabric& from, const std::string& address) {
    const Status status = from.set_peer(1 - from.node(), 1, address);
    CHECK(status.ok(), "{}", status.message());
}

void bench_local() {
    auto network = make_local_network();
    Rank a(make_local_fabric(network, 0, 1)), b(make_local_fabric(network, 1, 1));
    connect(a.fabric(), b.fabric().address());
    std::thread other([&] { run_steps(b, false); });
    const Figures figures = run_steps(a, true);
    other.join();
    print("local", figures, idle_cpu_percent());
}

void bench_ucx(const std::string& transports) {
    Rank rank(ucx_host(0, transports));
    const std::string address = rank.fabric().address();
    std::string arguments[] = {"comm_bench", "--peer", transports, address};
    char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(),
                    arguments[3].data(), nullptr};
    pid_t pid = 0;
    const int status = posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv, environ);
    CHECK(status == 0, "{}", strerror(status));
    while (rank.fabric().peer_epoch(1) == 0) usleep(1000);
    const Figures figures = run_steps(rank, true);
    print(transports.empty() ? "shared memory" : transports, figures, idle_cpu_percent());
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
}

void run_peer(const std::string& transports, const std::string& address) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Rank rank(ucx_host(1, transports));
    connect(rank.fabric(), address);
    run_steps(rank, false);
    pause();
}

}  // namespace
}  // namespace aerie::comm

int main(int argc, char** argv) {
    using namespace aerie::comm;
    aerie::set_log_level(aerie::LogLevel::kWarning);
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    if (arguments.size() == 3 && arguments[0] == "--peer") {
        run_peer(arguments[1], arguments[2]);
        return 0;
    }
    fmt::print("{:<16}{:>17}{}\n", "", "8 KB one way, us", "      bandwidth, GB/s (x memcpy)");
    fmt::print("{:<16}{:>8}{:>9}{:>16}{:>16}{:>16}{:>10}\n", "", "woken", "polled", "64 KB", "1 MB",
               "16 MB", "idle CPU");
    if (arguments.empty()) bench_local();
    for (const auto& transports :
         arguments.empty() ? std::vector<std::string>{"", "tcp"} : arguments)
        bench_ucx(transports);
    return 0;
}
