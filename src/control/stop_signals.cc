#include "control/stop_signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "base/thread.h"
#include "control/file_descriptor.h"

namespace aerie::control {
namespace {

sigset_t stop_set() {
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    return stop;
}

FileDescriptor open_signals() {
    const sigset_t stop = stop_set();
    return FileDescriptor(signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK));
}

}  // namespace

void block_stop_signals() {
    const sigset_t stop = stop_set();
    pthread_sigmask(SIG_BLOCK, &stop, nullptr);
}

class StopSignals::Impl {
  public:
    explicit Impl(std::function<void(int)> listener)
        : listener_(std::move(listener)),
          signals_(open_signals()),
          thread_([this] { run(); }) {}

    ~Impl() {
        end_.wake();
        thread_.join();
    }

    int count() {
        std::lock_guard lock(mutex_);
        return count_;
    }

    void wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return count_ > 0; });
    }

    void raise() { raised_.wake(); }

  private:
    void run() {
        set_thread_name("stop-signals");
        pollfd fds[] = {{signals_.get(), POLLIN, 0}, {raised_.get(), POLLIN, 0},
                        {end_.get(), POLLIN, 0}};
        while (fds[2].revents == 0) {
            if (poll(fds, 3, -1) < 0) continue;
            signalfd_siginfo info;
            while (read(signals_.get(), &info, sizeof info) == sizeof info) {
                log_info("signal {}: stopping", info.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM");
                take();
            }
            if (fds[1].revents != 0) {
                raised_.drain();
                take();
            }
        }
    }

    void take() {
        int count = 0;
        {
            std::lock_guard lock(mutex_);
            count = ++count_;
        }
        changed_.notify_all();
        listener_(count);
    }

    const std::function<void(int)> listener_;
    const FileDescriptor signals_;
    const WakeFd raised_, end_;
    std::mutex mutex_;
    std::condition_variable changed_;
    int count_ = 0;
    std::thread thread_;
};

StopSignals::StopSignals(std::function<void(int)> listener)
    : impl_(std::make_unique<Impl>(std::move(listener))) {}
StopSignals::~StopSignals() = default;
int StopSignals::count() const { return impl_->count(); }
void StopSignals::wait() const { impl_->wait(); }
void StopSignals::raise() { impl_->raise(); }

}  // namespace aerie::control
