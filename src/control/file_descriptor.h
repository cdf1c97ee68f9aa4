// A file descriptor that closes itself, and a way to wake a thread that polls.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

namespace aerie::control {

class FileDescriptor {
  public:
    FileDescriptor() = default;
    explicit FileDescriptor(int fd) : fd_(fd) {}
    FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    FileDescriptor& operator=(FileDescriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~FileDescriptor() { reset(); }

    int get() const { return fd_; }
    void reset() {
        if (fd_ >= 0) close(fd_);
        fd_ = -1;
    }

  private:
    int fd_ = -1;  // owned
};

// Readable, to poll(), from wake() until drain(). Any thread.
class WakeFd {
  public:
    WakeFd() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
    int get() const { return fd_.get(); }
    void wake() const { eventfd_write(fd_.get(), 1); }
    void drain() const {
        eventfd_t count;
        eventfd_read(fd_.get(), &count);
    }

  private:
    FileDescriptor fd_;
};

}  // namespace aerie::control
