#include "app/bench_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/json.h"

namespace aerie::bench {
namespace {

constexpr std::chrono::milliseconds kPoll(20);

// In the child, between fork and exec: async-signal-safe calls only.
[[noreturn]] void become(char* const* argv, int output, pid_t parent) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    const int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    execv(argv[0], argv);
    _exit(127);
}

std::string last_lines(const std::string& text, int count) {
    size_t at = text.size();
    while (at > 0 && text[at - 1] == '\n') --at;
    const size_t end = at;
    for (; at > 0; --at) {
        if (text[at - 1] == '\n' && --count == 0) break;
    }
    return text.substr(at, end - at);
}

std::string describe_end(int status) {
    if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
    return fmt::format("ended with status {}", WEXITSTATUS(status));
}

}  // namespace

Result<int> free_port() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    const bool found = fd >= 0 &&
                       bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                       getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    const int reason = errno;
    if (fd >= 0) close(fd);
    if (!found) return error("no free port on 127.0.0.1: {}", std::strerror(reason));
    return static_cast<int>(ntohs(address.sin_port));
}

Result<std::unique_ptr<ServerProcess>> ServerProcess::start(const std::vector<std::string>& argv) {
    std::unique_ptr<ServerProcess> server(new ServerProcess);
    const char* folder = std::getenv("TMPDIR");
    server->output_path_ = fmt::format("{}/aerie-bench-XXXXXX", folder ? folder : "/tmp");
    const int output = mkostemp(server->output_path_.data(), O_CLOEXEC);
    if (output < 0) {
        return error("cannot create {}: {}", server->output_path_, std::strerror(errno));
    }
    std::vector<char*> raw;
    for (const std::string& argument : argv) {
        server->command_ += (raw.empty() ? "" : " ") + argument;
        raw.push_back(const_cast<char*>(argument.c_str()));
    }
    raw.push_back(nullptr);
    const pid_t parent = getpid();
    server->pid_ = fork();
    if (server->pid_ == 0) become(raw.data(), output, parent);
    const int reason = errno;
    close(output);
    if (server->pid_ < 0) return error("cannot start {}: {}", argv[0], std::strerror(reason));
    return server;
}

ServerProcess::~ServerProcess() {
    if (pid_ > 0) {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    unlink(output_path_.c_str());
}

bool ServerProcess::ended() {
    if (pid_ > 0 && waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = -1;
    return pid_ < 0;
}

Status ServerProcess::wait_healthy(const Endpoint& endpoint, double limit_s) {
    const TimePoint begin = Clock::now();
    for (;;) {
        if (ended()) return with_output(describe_end(status_) + " before it was healthy");
        const double left_s = limit_s - seconds_since(begin);
        if (left_s <= 0) return with_output(fmt::format("not healthy after {} s", limit_s));
        auto reply = http_get(endpoint, "/health", "", std::min(left_s, 5.0));
        seconds_to_health_ = seconds_since(begin);
        if (reply && reply->status == 200) return {};
        std::this_thread::sleep_for(kPoll);
    }
}

Status ServerProcess::stop(double limit_s) {
    const TimePoint begin = Clock::now();
    if (!ended()) kill(pid_, SIGTERM);
    while (!ended()) {
        if (seconds_since(begin) > limit_s) {
            return with_output(fmt::format("still runs {} s after SIGTERM", limit_s));
        }
        std::this_thread::sleep_for(kPoll);
    }
    if (WIFEXITED(status_) && WEXITSTATUS(status_) == 0) return {};
    return with_output(describe_end(status_) + ", expected 0");
}

Error ServerProcess::with_output(const std::string& what) const {
    auto output = read_file(output_path_);
    return error("{}: {}; its last lines:\n{}", command_, what,
                 output ? last_lines(*output, 20) : output.message());
}

}  // namespace aerie::bench
