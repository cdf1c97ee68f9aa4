// PinnedBuffer: host memory that the card copies to and from at full speed and in its own time.
// Move-only; not zeroed; whoever lets go of it has waited for such copies.
#pragma once

#include <cstddef>
#include <utility>

#include "tensor/card.h"

namespace aerie {

class PinnedBuffer {
  public:
    PinnedBuffer() = default;
    explicit PinnedBuffer(size_t num_bytes)
        : data_(num_bytes > 0 ? card::allocate_pinned(num_bytes) : nullptr), size_(num_bytes) {}
    ~PinnedBuffer() {
        if (data_ != nullptr) card::release_pinned(data_);
    }
    PinnedBuffer(PinnedBuffer&& other) noexcept { swap(other); }
    PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
        swap(other);
        return *this;
    }

    template <typename T>
    T* as() {
        return static_cast<T*>(data_);
    }
    template <typename T>
    const T* as() const {
        return static_cast<const T*>(data_);
    }
    size_t size() const { return size_; }  // bytes

  private:
    void swap(PinnedBuffer& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }

    void* data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace aerie
