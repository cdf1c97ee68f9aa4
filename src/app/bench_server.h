// A server that a comparison starts, waits for and stops.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "app/bench_load.h"

namespace aerie::bench {

// A free port of 127.0.0.1 at the moment of the call.
Result<int> free_port();

class ServerProcess {
  public:
    // argv[0] is what runs; /proc/self/exe is this binary. Its output goes to a file of its own.
    // The child gets SIGTERM when the calling thread ends.
    static Result<std::unique_ptr<ServerProcess>> start(const std::vector<std::string>& argv);
    ~ServerProcess();  // kills it where it still runs; removes the output

    // Blocks until GET /health answers 200. The error has the last lines of its output.
    Status wait_healthy(const Endpoint& endpoint, double limit_s);
    // SIGTERM; an error where it does not end with status 0 within `limit_s`.
    Status stop(double limit_s);

    double seconds_to_health() const { return seconds_to_health_; }

  private:
    ServerProcess() = default;
    bool ended();  // reaps it
    Error with_output(const std::string& what) const;

    pid_t pid_ = -1;  // -1 once reaped
    int status_ = 0;  // of waitpid
    std::string command_, output_path_;
    double seconds_to_health_ = 0;
};

}  // namespace aerie::bench
