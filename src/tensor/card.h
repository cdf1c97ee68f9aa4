// The GPU of this process: its memory and copies. One process uses one card, the current device of
// CUDA's runtime.
//
// Errors. A failure of a card is sticky: no later call on it can work. So it ends the process with
// what CUDA said, as a lack of memory does that was planned; a host process is the unit that can
// die.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "tensor/device.h"

namespace aerie::card {

bool built();            // this build has CUDA
int count();             // cards of this machine, all of compute capability 9; 0 without CUDA
int64_t memory_total();  // bytes of the first card
int64_t memory_free();   // bytes of the current card that nobody has

void* allocate(size_t num_bytes);  // of the card, zero; CHECKs that there is as much
void release(void* memory);
void* allocate_pinned(size_t num_bytes);  // of the host, that copies to and from the card may use
void release_pinned(void* memory);

// A queue of the card's work, in order. Any thread.
using Queue = void*;  // cudaStream_t
Queue make_queue();
void release_queue(Queue queue);
// Waits for all that was put on the queue; no limit of time, as the card has none.
void synchronize(Queue queue);

// Copies between any two of card and host memory; host memory that is not pinned is copied before
// it returns, all else in the queue's order.
void copy(Queue queue, void* to, const void* from, size_t num_bytes);
void zero(Queue queue, void* memory, size_t num_bytes);
// The same without a queue, complete when it returns.
void copy_now(void* to, const void* from, size_t num_bytes);

// Memory that allocate() gave, for other processes of this machine on the same card or on one that
// reaches it: opaque bytes.
std::string share(void* memory);

// Another process's memory by what its share() gave, until the destructor; the owner keeps it as long.
// Move-only.
class Imported {
  public:
    Imported() = default;
    explicit Imported(const std::string& shared);  // nullptr where the card cannot reach it
    ~Imported();
    Imported(Imported&& other) noexcept : memory_(std::exchange(other.memory_, nullptr)) {}
    Imported& operator=(Imported&& other) noexcept {
        std::swap(memory_, other.memory_);
        return *this;
    }
    void* memory() const { return memory_; }

  private:
    void* memory_ = nullptr;
};

// A queue for copies that go on beside the ranks' work, made when it is first used. Any thread; who waits
// for it waits for what others have put there too.
class CopyQueue {
  public:
    ~CopyQueue() {
        if (queue_ != nullptr) release_queue(queue_);
    }
    CopyQueue() = default;
    CopyQueue(const CopyQueue&) = delete;
    CopyQueue& operator=(const CopyQueue&) = delete;
    Queue get() {
        std::call_once(made_, [this] { queue_ = make_queue(); });
        return queue_;
    }

  private:
    std::once_flag made_;
    Queue queue_ = nullptr;
};

// Work that was put on a queue once, to be put on one again as a whole: a CUDA graph. Between begin
// and end the calling thread's work goes into the graph instead of being done; its pointers and
// sizes stay as they are then. Move-only.
class Graph {
  public:
    Graph() = default;
    ~Graph();
    Graph(Graph&& other) noexcept : executable_(std::exchange(other.executable_, nullptr)) {}
    Graph& operator=(Graph&& other) noexcept {
        std::swap(executable_, other.executable_);
        return *this;
    }

    static void begin(Queue queue);
    static Graph end(Queue queue);
    void launch(Queue queue) const;

  private:
    void* executable_ = nullptr;  // cudaGraphExec_t
};

}  // namespace aerie::card
