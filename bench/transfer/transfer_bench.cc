// KV blocks put into and got from a peer's pool, beside memcpy of the same blocks.
// usage: transfer_bench [backend ...]     local, ucx, ucx-messages, ucx-tcp, gloo; without: all
//
// A block is 64 tokens of one layer of DeepSeek-V3's latents in BF16, 64 * 576 * 2 bytes; the demo
// model's has the same size. The blocks are scattered: none has its neighbour in the same batch.
// The owner is this program, started again (local: another host of this process); its pool is
// allocate_memory(), with ucx-messages memory that was registered and goes by messages. A time is from put() or get() to its end, the median of the batches; GB/s are
// of the best batch, as the machine is not ours alone. The last columns are a stream of puts with
// 16 under way, for compare.sh.
#include <fmt/core.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/fabric.h"

namespace aerie::comm {
namespace {

constexpr size_t kBlockBytes = 64 * 576 * 2;
constexpr size_t kLargeBytes = 1 << 20;
constexpr size_t kMaxBlocks = 512;
constexpr size_t kPoolBytes = 2 * kMaxBlocks * kBlockBytes;
constexpr size_t kCounts[] = {1, 64, 512};
constexpr int kBatches = 20;
constexpr int kWindow = 16;

// Keeps the key that the owner sends.
class KeyInbox : public Receiver {
  public:
    std::byte* accept(const Incoming& message) override {
        key_.resize(message.payload_bytes);
        return reinterpret_cast<std::byte*>(key_.data());
    }
    void delivered(const Incoming&, const std::byte*) override { here_ = true; }
    void failed(const Incoming&) override {}
    const std::string& wait() const {
        while (!here_) usleep(500);
        return key_;
    }

  private:
    std::string key_;
    std::atomic<bool> here_{false};
};

std::unique_ptr<Fabric> host(const std::string& backend, int node) {
    NetworkOptions options{.node = node};
    if (backend == "ucx-tcp") options.transports = "tcp";
    auto fabric = backend == "gloo" ? make_gloo_fabric(options) : make_ucx_fabric(options);
    CHECK(fabric.ok(), "{}", fabric.message());
    return std::move(*fabric);
}

// The owner's part: a pool whose pages exist, and its key for the other host.
void offer(Fabric& fabric, const std::string& backend) {
    static std::vector<std::byte> memory(backend == "ucx-messages" ? kPoolBytes : 0);
    auto pool = memory.empty() ? fabric.allocate_memory(kPoolBytes)
                               : fabric.register_memory(memory.data(), kPoolBytes);
    CHECK(pool.ok(), "{}", pool.message());
    std::memset(pool->base, 1, kPoolBytes);
    std::atomic<int> pending{0};
    const Status sent =
        fabric.send({0, 0}, {.header = "",
                             .header_bytes = 0,
                             .payload = reinterpret_cast<std::byte*>(pool->key.data()),
                             .payload_bytes = pool->key.size(),
                             .pending = &pending});
    CHECK(sent.ok(), "{}", sent.message());
    while (pending != 0) usleep(500);
}

struct Sample {
    double median_us, best_us;
};
template <typename Body>
Sample measure(const Body& body) {
    std::vector<double> us;
    for (int batch = 0; batch < kBatches; ++batch) {
        const TimePoint start = Clock::now();
        body();
        us.push_back(seconds_since(start) * 1e6);
    }
    std::sort(us.begin(), us.end());
    return {us[us.size() / 2], us.front()};
}

std::vector<Piece> scattered(std::byte* local, size_t count) {
    std::vector<Piece> pieces;
    for (size_t i = 0; i < count; ++i)
        pieces.push_back({2 * i * kBlockBytes, local + 2 * i * kBlockBytes, kBlockBytes});
    return pieces;
}

class Bench {
  public:
    Bench(Fabric& fabric, const RemoteRegion& region) : fabric_(fabric), region_(region) {}

    void run(const std::string& name) {
        for (const size_t count : kCounts) {
            const auto pieces = scattered(local_.data(), count);
            const Sample copy = measure([&] {
                for (const Piece& piece : pieces)
                    std::memcpy(copied_.data() + piece.offset, piece.local, piece.bytes);
            });
            const Sample put = measure([&] { wait(Access::kPut, pieces); });
            const Sample get = measure([&] { wait(Access::kGet, pieces); });
            const double gb = static_cast<double>(count * kBlockBytes) * 1e-3;  // GB/s from us
            fmt::print("{:<13}{:>5}{:>12.1f}{:>8.2f}{:>12.1f}{:>8.2f}{:>12.1f}{:>8.2f}\n", name,
                       count, put.median_us, gb / put.best_us, get.median_us, gb / get.best_us,
                       copy.median_us, gb / copy.best_us);
        }
        for (const size_t bytes : {kBlockBytes, kLargeBytes})
            fmt::print("stream {} {} {:.0f} MB/s\n", name, bytes, stream(bytes));
    }

  private:
    void wait(Access access, const std::vector<Piece>& pieces) {
        std::atomic<bool> over{false};
        const auto done = [&](const Status& status) {
            CHECK(status.ok(), "{}", status.message());
            over = true;
            event_.notify();
        };
        const uint64_t seen = event_.value();
        const Status begun = fabric_.transfer(access, region_, pieces, done);
        CHECK(begun.ok(), "{}", begun.message());
        event_.wait(seen, after(60));
        CHECK(over, "a transfer has not ended for 60 s");
    }

    // As ucx_perftest's ucp_put_bw: one message after the other to the same place.
    double stream(size_t bytes) {
        const size_t number = (size_t{1} << 30) / bytes / 2;
        std::atomic<size_t> ended{0};
        const TimePoint start = Clock::now();
        for (size_t i = 0; i < number; ++i) {
            while (i - ended >= kWindow) usleep(20);
            const Piece piece{0, local_.data(), bytes};
            const Status begun = fabric_.put(region_, {&piece, 1}, [&](const Status& status) {
                CHECK(status.ok(), "{}", status.message());
                ++ended;
            });
            CHECK(begun.ok(), "{}", begun.message());
        }
        while (ended < number) usleep(20);
        return static_cast<double>(number * bytes) / seconds_since(start) * 1e-6;
    }

    Fabric& fabric_;
    const RemoteRegion region_;
    Event event_;
    std::vector<std::byte> local_ = std::vector<std::byte>(kPoolBytes, std::byte{2});
    std::vector<std::byte> copied_ = std::vector<std::byte>(kPoolBytes, std::byte{3});
};

void bench_on(Fabric& fabric, const KeyInbox& inbox, const std::string& name) {
    auto region = fabric.attach(inbox.wait());
    CHECK(region.ok(), "{}", region.message());
    Bench(fabric, *region).run(name);
}

void bench_local() {
    auto network = make_local_network();
    auto a = make_local_fabric(network, 0, 1), b = make_local_fabric(network, 1, 1);
    KeyInbox inbox;
    a->open(0, &inbox);
    const Status connected = b->set_peer(0, 1, a->address());
    CHECK(connected.ok(), "{}", connected.message());
    offer(*b, "local");
    bench_on(*a, inbox, "local");
}

void bench_network(const std::string& backend) {
    auto fabric = host(backend, 0);
    KeyInbox inbox;
    fabric->open(0, &inbox);
    std::string arguments[] = {"transfer_bench", "--owner", backend, fabric->address()};
    char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(),
                    arguments[3].data(), nullptr};
    pid_t pid = 0;
    const int status = posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv, environ);
    CHECK(status == 0, "{}", strerror(status));
    bench_on(*fabric, inbox, backend);
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
}

void run_owner(const std::string& backend, const std::string& address) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    auto fabric = host(backend, 1);
    const Status connected = fabric->set_peer(0, 1, address);
    CHECK(connected.ok(), "{}", connected.message());
    offer(*fabric, backend);
    pause();
}

}  // namespace
}  // namespace aerie::comm

int main(int argc, char** argv) {
    using namespace aerie::comm;
    aerie::set_log_level(aerie::LogLevel::kWarning);
    std::vector<std::string> arguments(argv + 1, argv + argc);
    if (arguments.size() == 3 && arguments[0] == "--owner") {
        run_owner(arguments[1], arguments[2]);
        return 0;
    }
    if (arguments.empty()) arguments = {"local", "ucx", "ucx-messages", "ucx-tcp", "gloo"};
    fmt::print("{:<13}{:>5}{:>12}{:>8}{:>12}{:>8}{:>12}{:>8}\n", "", "blocks", "put us", "GB/s",
               "get us", "GB/s", "memcpy us", "GB/s");
    for (const std::string& backend : arguments) {
        if (backend == "local")
            bench_local();
        else
            bench_network(backend);
    }
    return 0;
}
