#include "control/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "base/thread.h"
#include "control/file_descriptor.h"

namespace aerie::control {
namespace {

constexpr int kLifeFd = 3;          // in the host: the first after standard input, output and error
constexpr double kReapSeconds = 5;  // from the end of the life socket to the process's end

struct Spawned {
    pid_t pid;
    FileDescriptor life;
};

// The child gets standard input, output and error and its end of the life socket, nothing else; no
// blocked signals, and none ignored.
Result<Spawned> spawn(const std::string& program, const std::vector<std::string>& arguments) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return error("socketpair: {}", std::strerror(errno));
    }
    FileDescriptor mine(pair[0]), theirs(pair[1]);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, theirs.get(), kLifeFd);
    posix_spawn_file_actions_addclosefrom_np(&actions, kLifeFd + 1);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

    std::vector<char*> argv;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    pid_t pid = 0;
    const int status = posix_spawn(&pid, program.c_str(), &actions, &attributes, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (status != 0) return error("posix_spawn of {}: {}", program, std::strerror(status));
    return Spawned{pid, std::move(mine)};
}

}  // namespace

std::string HostDeath::describe() const {
    if (signaled) return fmt::format("pid {} was killed by signal {} ({})", pid, code, strsignal(code));
    return fmt::format("pid {} exited with status {}", pid, code);
}

class Supervisor::Impl {
  public:
    Impl(SupervisorOptions options, SupervisorEvents& events)
        : options_(std::move(options)), events_(events) {
        for (const auto& host : options_.hosts) {
            hosts_.push_back({.node = host.node,
                              .label = host.label,
                              .next_epoch = options_.first_epoch});
        }
        thread_ = std::thread([this] { run(); });
    }

    ~Impl() {
        stop(0);
        {
            std::lock_guard lock(mutex_);
            finished_ = true;
        }
        wake_.wake();
        thread_.join();
    }

    void start() {
        std::lock_guard lock(mutex_);
        for (Host& host : hosts_) host.start_at = Clock::now();
        wake_.wake();
    }

    void kill(int node, uint32_t epoch, double grace_s) {
        std::lock_guard lock(mutex_);
        Host* host = find(node);
        if (host == nullptr || host->pid == 0 || host->epoch != epoch) return;
        host->kill_at = after(grace_s);
        wake_.wake();
    }

    void stop_restarting() {
        std::lock_guard lock(mutex_);
        restarting_ = false;
        for (Host& host : hosts_) host.start_at.reset();
        changed_.notify_all();
    }

    bool stop(double limit_s) {
        stop_restarting();
        std::unique_lock lock(mutex_);
        const auto ended = [&] { return running() == 0; };
        if (changed_.wait_until(lock, after(limit_s), ended)) return true;
        for (Host& host : hosts_) {
            if (host.pid != 0) host.kill_at = Clock::now();
        }
        wake_.wake();
        changed_.wait(lock, ended);  // the kernel ends what SIGKILL was sent to
        return false;
    }

    pid_t pid(int node) {
        std::lock_guard lock(mutex_);
        const Host* host = find(node);
        return host == nullptr ? 0 : host->pid;
    }

    bool all_ended() {
        std::lock_guard lock(mutex_);
        return std::all_of(hosts_.begin(), hosts_.end(),
                           [](const Host& host) { return host.pid == 0 && !host.start_at; });
    }

  private:
    struct Host {
        int node;
        std::string label;
        uint32_t next_epoch;
        uint32_t epoch = 0;
        pid_t pid = 0;  // 0: no process
        FileDescriptor life = {};
        TimePoint started_at = {};
        std::optional<TimePoint> start_at = {};   // when it shall be started
        std::optional<TimePoint> kill_at = {};
        std::optional<TimePoint> closed_at = {};  // its life socket has ended
        int quick_failures = 0;
        bool told_to_end = false;  // it exited with status 0
        bool killed = false;       // by stop()
    };

    Host* find(int node) {
        const auto host = std::find_if(hosts_.begin(), hosts_.end(),
                                       [&](const Host& host) { return host.node == node; });
        return host == hosts_.end() ? nullptr : &*host;
    }

    int running() const {
        return static_cast<int>(std::count_if(hosts_.begin(), hosts_.end(),
                                              [](const Host& host) { return host.pid != 0; }));
    }

    void run() {
        set_thread_name("supervisor");
        std::unique_lock lock(mutex_);
        while (!finished_) {
            std::vector<HostDeath> deaths;
            std::vector<std::pair<int, std::string>> given_up;
            for (Host& host : hosts_) {
                if (host.start_at && Clock::now() >= *host.start_at) spawn_host(host, given_up);
                if (host.pid != 0) tend(host, deaths, given_up);
            }
            if (!deaths.empty() || !given_up.empty()) {
                lock.unlock();
                for (const HostDeath& death : deaths) events_.host_died(death);
                for (const auto& [node, why] : given_up) events_.gave_up(node, why);
                lock.lock();
                for (const HostDeath& death : deaths) plan_restart(*find(death.node));
                changed_.notify_all();
                continue;
            }
            wait(lock);
        }
    }

    // Sleeps until a life socket ends, a host's time has come, or wake_.
    void wait(std::unique_lock<std::mutex>& lock) {
        std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}};
        std::vector<int> nodes;
        TimePoint until = after(kIdleSeconds);
        for (const Host& host : hosts_) {
            if (host.start_at) until = std::min(until, *host.start_at);
            if (host.kill_at) until = std::min(until, *host.kill_at);
            if (host.closed_at) until = std::min(until, after(kReapPollSeconds));
            if (host.pid == 0 || host.closed_at) continue;
            fds.push_back({host.life.get(), POLLIN, 0});
            nodes.push_back(host.node);
        }
        lock.unlock();
        const double seconds = std::max(0.0, seconds_between(Clock::now(), until));
        poll(fds.data(), fds.size(), static_cast<int>(seconds * 1000) + 1);
        wake_.drain();
        lock.lock();
        for (size_t i = 0; i < nodes.size(); ++i) {
            if (fds[i + 1].revents != 0) find(nodes[i])->closed_at = Clock::now();
        }
    }

    void spawn_host(Host& host, std::vector<std::pair<int, std::string>>& given_up) {
        host.start_at.reset();
        host.epoch = host.next_epoch++;
        auto spawned =
            spawn(options_.program, options_.arguments(host.node, host.epoch, kLifeFd));
        if (!spawned) {
            given_up.emplace_back(host.node, fmt::format("host {} cannot be started: {}", host.label,
                                                         spawned.message()));
            return;
        }
        host.pid = spawned->pid;
        host.life = std::move(spawned->life);
        host.started_at = Clock::now();
        host.kill_at.reset();
        host.closed_at.reset();
        log_info("host {} is started: pid {}, epoch {}", host.label, host.pid, host.epoch);
    }

    // Kills what is due, and takes note of an end.
    void tend(Host& host, std::vector<HostDeath>& deaths,
              std::vector<std::pair<int, std::string>>& given_up) {
        if (host.closed_at && seconds_since(*host.closed_at) > kReapSeconds) {
            host.kill_at = Clock::now();  // it has closed its end, but lives on
        }
        if (host.kill_at && Clock::now() >= *host.kill_at) {
            ::kill(host.pid, SIGKILL);
            host.killed = !restarting_;
            host.kill_at.reset();
        }
        int status = 0;
        if (waitpid(host.pid, &status, WNOHANG) != host.pid) return;
        const bool signaled = WIFSIGNALED(status);
        const HostDeath death{host.node, host.epoch, host.pid, signaled,
                              signaled ? WTERMSIG(status) : WEXITSTATUS(status)};
        const bool quick = seconds_since(host.started_at) < options_.quick_s;
        host.told_to_end = !signaled && death.code == 0;
        host.quick_failures = quick ? host.quick_failures + 1 : 0;
        host.pid = 0;
        host.life.reset();
        host.closed_at.reset();
        host.kill_at.reset();
        if (!host.told_to_end && !host.killed) {
            log_error("host {} is dead: {}, epoch {}", host.label, death.describe(), host.epoch);
        }
        if (restarting_ && !host.told_to_end && host.quick_failures >= options_.max_quick_failures) {
            given_up.emplace_back(
                host.node, fmt::format("host {} is not started again: it died {} times in a row "
                                       "within {:g} s of its start, last: {}",
                                       host.label, host.quick_failures, options_.quick_s,
                                       death.describe()));
        }
        deaths.push_back(death);
    }

    void plan_restart(Host& host) {
        if (!restarting_ || host.told_to_end || host.quick_failures >= options_.max_quick_failures) return;
        double wait = 0;
        if (host.quick_failures > 1) {
            wait = options_.first_wait_s * static_cast<double>(1u << (host.quick_failures - 2));
        }
        host.start_at = after(std::min(wait, options_.max_wait_s));
    }

    static constexpr double kIdleSeconds = 3600;
    static constexpr double kReapPollSeconds = 0.01;

    const SupervisorOptions options_;
    SupervisorEvents& events_;
    WakeFd wake_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Host> hosts_;
    bool restarting_ = true;
    bool finished_ = false;
    std::thread thread_;
};

Supervisor::Supervisor(SupervisorOptions options, SupervisorEvents& events)
    : impl_(std::make_unique<Impl>(std::move(options), events)) {}
Supervisor::~Supervisor() = default;

void Supervisor::start() { impl_->start(); }
void Supervisor::kill(int node, uint32_t epoch, double grace_s) { impl_->kill(node, epoch, grace_s); }
void Supervisor::stop_restarting() { impl_->stop_restarting(); }
bool Supervisor::stop(double limit_s) { return impl_->stop(limit_s); }
pid_t Supervisor::pid(int node) const { return impl_->pid(node); }
bool Supervisor::all_ended() const { return impl_->all_ended(); }

}  // namespace aerie::control
