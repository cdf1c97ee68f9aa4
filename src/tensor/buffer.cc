#include "tensor/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "tensor/card.h"

namespace aerie {
namespace {

constexpr size_t kMapFrom = size_t{1} << 20;  // bytes; smaller buffers come from the heap
constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

}  // namespace

Buffer::Buffer(size_t num_bytes, Device device) : size_(num_bytes), device_(device) {
    if (num_bytes == 0) return;
    if (device == Device::kCuda) {
        data_ = card::allocate(num_bytes);
        return;
    }
    if (num_bytes >= kMapFrom) {
        data_ = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        CHECK(data_ != MAP_FAILED, "mapping {} bytes", num_bytes);
        // Fewer TLB misses on weights and KV; a refusal changes nothing but speed.
        if (num_bytes >= kHugePage) madvise(data_, num_bytes, MADV_HUGEPAGE);
    } else {
        data_ = std::aligned_alloc(kAlignment, round_up(num_bytes, kAlignment));
        CHECK(data_ != nullptr, "allocating {} bytes", num_bytes);
        std::memset(data_, 0, num_bytes);
    }
}

void Buffer::reset() {
    if (data_ == nullptr) return;
    if (device_ == Device::kCuda)
        card::release(data_);
    else if (size_ >= kMapFrom)
        munmap(data_, size_);
    else
        std::free(data_);
    data_ = nullptr;
    size_ = 0;
}

void Buffer::swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(device_, other.device_);
}

void* Scratch::reserve(size_t num_bytes) {
    if (buffer_.size() < num_bytes) {
        buffer_.reset();
        // The card's memory is planned, so nothing is taken in advance there.
        buffer_ = Buffer(device_ == Device::kCuda ? num_bytes : num_bytes + num_bytes / 2, device_);
    }
    return buffer_.data();
}

}  // namespace aerie
