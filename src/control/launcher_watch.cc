#include <poll.h>

#include <thread>

#include "base/thread.h"
#include "control/file_descriptor.h"
#include "control/supervisor.h"

namespace aerie::control {

class LauncherWatch::Impl {
  public:
    Impl(int life_fd, std::function<void()> gone)
        : life_(life_fd), gone_(std::move(gone)), thread_([this] { watch(); }) {}
    ~Impl() {
        stop_.wake();
        thread_.join();
    }

  private:
    void watch() {
        set_thread_name("launcher-watch");
        pollfd fds[] = {{life_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
        while (poll(fds, 2, -1) < 0) {  // interrupted
        }
        if (fds[1].revents == 0) gone_();
    }

    FileDescriptor life_;
    WakeFd stop_;
    std::function<void()> gone_;
    std::thread thread_;
};

LauncherWatch::LauncherWatch(int life_fd, std::function<void()> gone)
    : impl_(std::make_unique<Impl>(life_fd, std::move(gone))) {}
LauncherWatch::~LauncherWatch() = default;

}  // namespace aerie::control
