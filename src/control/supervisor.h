// Supervisor: starts the host processes of this machine's nodes, sees their death at once, and
// starts them again, unless they exited with status 0: then they were told to end.
//
// Launcher and host are tied by a socket pair that nothing is ever written to: each side sees the
// other's death as the end of its stream, however that process ended (LauncherWatch is the host's
// side). All hosts are spawned by one thread that lives as long as the supervisor, so that a host
// may also ask the kernel for a signal at its parent's death.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace aerie::control {

struct HostDeath {
    int node;
    uint32_t epoch;
    pid_t pid;
    bool signaled;
    int code;  // signal number, or exit status
    std::string describe() const;  // "pid 71 was killed by signal 9 (Killed)"
};

// Called on the supervisor's thread; may not wait.
class SupervisorEvents {
  public:
    // Before the node is started again.
    virtual void host_died(const HostDeath& death) = 0;
    // The node is not started again: it has died too often too soon.
    virtual void gave_up(int node, const std::string& why) = 0;

  protected:
    ~SupervisorEvents() = default;
};

struct SupervisorOptions {
    struct Host {
        int node;
        std::string label;  // "node-1 (decode)", for the log
    };
    std::vector<Host> hosts;
    std::string program = "/proc/self/exe";  // this binary, even when its file has been replaced
    // The arguments of one life of a host, argv[0] first. life_fd: the host's end of the pair.
    std::function<std::vector<std::string>(int node, uint32_t epoch, int life_fd)> arguments;
    uint32_t first_epoch = 1;
    // A death within quick_s of its start is a quick failure. The first restart is immediate; after
    // n quick failures in a row the next waits first_wait_s · 2^(n-1), at most max_wait_s; after
    // max_quick_failures in a row the supervisor gives up.
    double quick_s = 30;
    double first_wait_s = 0.5, max_wait_s = 30;
    int max_quick_failures = 6;
};

class Supervisor {
  public:
    // `events` must outlive the supervisor.
    Supervisor(SupervisorOptions options, SupervisorEvents& events);
    ~Supervisor();  // as stop(0)
    Supervisor(const Supervisor&) = delete;
    Supervisor& operator=(const Supervisor&) = delete;

    // Starts all hosts. All calls: any thread.
    void start();
    // Ends one life of a host with SIGKILL once grace_s seconds have passed, unless it has ended
    // by then.
    void kill(int node, uint32_t epoch, double grace_s);
    // No host is started again from now on.
    void stop_restarting();
    // Waits until every host has ended, at most limit_s seconds; then ends them with SIGKILL. No
    // process is left when this returns. True: none had to be killed.
    bool stop(double limit_s);
    // The process of a node, or 0 where there is none now.
    pid_t pid(int node) const;
    // Every host has ended, and none will be started again.
    bool all_ended() const;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

// The host's side: a thread that calls `gone` once the launcher has ended, or has closed its end.
class LauncherWatch {
  public:
    LauncherWatch(int life_fd, std::function<void()> gone);
    ~LauncherWatch();  // `gone` is not called afterwards

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace aerie::control
