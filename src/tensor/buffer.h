// Buffer: owns bytes of host memory, aligned to 64, or of the card's. Large ones of the host are
// mapped: pages that were never written cost nothing and read as zero. Move-only; freed by the
// destructor on any thread.
#pragma once

#include <cstddef>

#include "tensor/device.h"

namespace aerie {

class Buffer {
  public:
    Buffer() = default;
    explicit Buffer(size_t num_bytes, Device device = Device::kCpu);  // all zero
    ~Buffer() { reset(); }
    Buffer(Buffer&& other) noexcept { swap(other); }
    Buffer& operator=(Buffer&& other) noexcept {
        swap(other);
        return *this;
    }

    void* data() { return data_; }
    const void* data() const { return data_; }
    template <typename T>
    T* as() {
        return static_cast<T*>(data_);
    }
    template <typename T>
    const T* as() const {
        return static_cast<const T*>(data_);
    }
    size_t size() const { return size_; }  // bytes
    Device device() const { return device_; }
    void reset();

  private:
    void swap(Buffer& other) noexcept;

    void* data_ = nullptr;
    size_t size_ = 0;
    Device device_ = Device::kCpu;
};

// Scratch: a buffer that grows and never shrinks, for workspaces of a steady size. Not zeroed, and
// what it held is lost when it grows.
class Scratch {
  public:
    explicit Scratch(Device device = Device::kCpu) : device_(device) {}

    // At least num_bytes, aligned to 64; valid until the next call or the destructor.
    void* reserve(size_t num_bytes);
    template <typename T>
    T* reserve_as(size_t count) {
        return static_cast<T*>(reserve(count * sizeof(T)));
    }

    size_t size() const { return buffer_.size(); }  // bytes

  private:
    Device device_;
    Buffer buffer_;
};

}  // namespace aerie
