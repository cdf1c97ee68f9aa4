// Builds without CUDA: there is no card, and so nobody who could call more than count().
#include "tensor/card.h"

#include <cstdlib>

#include "base/check.h"

namespace aerie::card {
namespace {

[[noreturn]] void no_card() {
    CHECK(false, "this build has no CUDA, and a card was used");
    std::abort();
}

}  // namespace

bool built() { return false; }
int count() { return 0; }
int64_t memory_total() { no_card(); }
int64_t memory_free() { no_card(); }
void* allocate(size_t) { no_card(); }
void release(void*) { no_card(); }
void* allocate_pinned(size_t) { no_card(); }
void release_pinned(void*) { no_card(); }
Queue make_queue() { no_card(); }
void release_queue(Queue) { no_card(); }
void synchronize(Queue) { no_card(); }
void copy(Queue, void*, const void*, size_t) { no_card(); }
void zero(Queue, void*, size_t) { no_card(); }
void copy_now(void*, const void*, size_t) { no_card(); }
std::string share(void*) { no_card(); }
Imported::Imported(const std::string&) { no_card(); }
Imported::~Imported() = default;
Graph::~Graph() = default;
void Graph::begin(Queue) { no_card(); }
Graph Graph::end(Queue) { no_card(); }
void Graph::launch(Queue) const { no_card(); }

}  // namespace aerie::card
