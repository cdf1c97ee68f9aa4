// Stream: what an operation runs on. On the CPU an operation is complete when its call returns, and
// its work is shared with the pool. On the card it is complete when the stream's queue has come to
// it: its arguments' memory is the card's, in the queue's order. One stream belongs to one rank
// thread.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/thread_pool.h"
#include "tensor/buffer.h"
#include "tensor/card.h"
#include "tensor/device.h"

namespace aerie {

class Stream {
  public:
    // pool may be null: the calling thread then does everything. It must outlive the stream.
    explicit Stream(ThreadPool* pool = nullptr, Device device = Device::kCpu)
        : device_(device),
          pool_(pool),
          queue_(device == Device::kCpu ? nullptr : card::make_queue()) {}
    ~Stream() {
        if (queue_ != nullptr) card::release_queue(queue_);
    }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    Device device() const { return device_; }
    bool on_card() const { return device_ == Device::kCuda; }
    card::Queue queue() const { return queue_; }  // of the card
    // On the card: rows for FP8 weights are quantised to FP8 too, by groups of 128 columns, where a
    // kernel serves the shape (kernels/cuda/fp8_ops.h). Some 3 % of a product's size in error, for
    // twice the operations a second. Otherwise they stay bfloat16.
    bool quantises_rows() const { return quantises_rows_; }
    void set_quantises_rows(bool on) { quantises_rows_ = on; }
    // In the stream's order.
    void zero(void* memory, size_t num_bytes) {
        on_card() ? card::zero(queue_, memory, num_bytes)
                  : static_cast<void>(std::memset(memory, 0, num_bytes));
    }
    // Memory of the card for an operation's own use, of that operation alone as the queue's order
    // keeps them apart. Each kind grows to what was asked most, so that after one pass with the
    // largest step nothing is allocated any more.
    enum class CardScratch : uint8_t { kActivations, kGemm, kExperts, kAttention, kCount };
    void* card_scratch(CardScratch kind, size_t num_bytes) {
        Scratch& scratch = scratch_[static_cast<size_t>(kind)];
        CHECK(!scratch_frozen_ || num_bytes <= scratch.size(), "{} bytes of scratch {}, which has {}",
              num_bytes, static_cast<int>(kind), scratch.size());
        return scratch.reserve(num_bytes);
    }
    // From now on it must not grow: graphs know where it is.
    void freeze_card_scratch() { scratch_frozen_ = true; }
    int num_threads() const { return pool_ == nullptr ? 1 : pool_->num_workers() + 1; }

    // Calls fn(i) once for each i in [0, n), on this thread and the pool's.
    template <typename Fn>
    void parallel_for(int64_t n, Fn&& fn) {
        if (pool_ == nullptr || n <= 1) {
            for (int64_t i = 0; i < n; ++i) fn(i);
        } else {
            pool_->parallel_for(n, fn);
        }
    }

  private:
    Device device_ = Device::kCpu;
    ThreadPool* pool_ = nullptr;
    card::Queue queue_ = nullptr;
    bool quantises_rows_ = false;
    bool scratch_frozen_ = false;
    Scratch scratch_[static_cast<size_t>(CardScratch::kCount)] = {
        Scratch(device_), Scratch(device_), Scratch(device_), Scratch(device_)};
};

}  // namespace aerie
