#include "tensor/card.h"

#include "tensor/cuda/check.h"

namespace aerie::card {
namespace {

cudaStream_t stream_of(Queue queue) { return static_cast<cudaStream_t>(queue); }

}  // namespace

bool built() { return true; }

int64_t memory_total() {
    cudaDeviceProp properties{};
    CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    return static_cast<int64_t>(properties.totalGlobalMem);
}

int count() {
    int num_cards = 0;
    return cudaGetDeviceCount(&num_cards) == cudaSuccess ? num_cards : 0;
}

int64_t memory_free() {
    size_t free = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return static_cast<int64_t>(free);
}

void use(int index) { CUDA_CHECK(cudaSetDevice(index)); }

void* allocate(size_t num_bytes) {
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, num_bytes);
    CHECK(status == cudaSuccess, "{} bytes of the card, of which {} are free: {}", num_bytes,
          memory_free(), cudaGetErrorString(status));
    CUDA_CHECK(cudaMemset(memory, 0, num_bytes));
    return memory;
}

void release(void* memory) { CUDA_CHECK(cudaFree(memory)); }

void* allocate_pinned(size_t num_bytes) {
    void* memory = nullptr;
    CUDA_CHECK(cudaMallocHost(&memory, num_bytes));
    return memory;
}

void release_pinned(void* memory) { CUDA_CHECK(cudaFreeHost(memory)); }

Queue make_queue() {
    cudaStream_t stream = nullptr;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

void release_queue(Queue queue) { CUDA_CHECK(cudaStreamDestroy(stream_of(queue))); }

void synchronize(Queue queue) { CUDA_CHECK(cudaStreamSynchronize(stream_of(queue))); }

void copy(Queue queue, void* to, const void* from, size_t num_bytes) {
    CUDA_CHECK(cudaMemcpyAsync(to, from, num_bytes, cudaMemcpyDefault, stream_of(queue)));
}

void zero(Queue queue, void* memory, size_t num_bytes) {
    CUDA_CHECK(cudaMemsetAsync(memory, 0, num_bytes, stream_of(queue)));
}

void copy_now(void* to, const void* from, size_t num_bytes) {
    CUDA_CHECK(cudaMemcpy(to, from, num_bytes, cudaMemcpyDefault));
}

Graph::~Graph() {
    if (executable_ != nullptr)
        CUDA_CHECK(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_)));
}

void Graph::begin(Queue queue) {
    CUDA_CHECK(cudaStreamBeginCapture(stream_of(queue), cudaStreamCaptureModeThreadLocal));
}

Graph Graph::end(Queue queue) {
    cudaGraph_t graph = nullptr;
    CUDA_CHECK(cudaStreamEndCapture(stream_of(queue), &graph));
    Graph made;
    cudaGraphExec_t executable = nullptr;
    CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    CUDA_CHECK(cudaGraphDestroy(graph));
    made.executable_ = executable;
    return made;
}

void Graph::launch(Queue queue) const {
    CUDA_CHECK(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), stream_of(queue)));
}

}  // namespace aerie::card
