#include "tensor/card.h"

#include <cstdlib>
#include <cstring>

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
    // All kernels are loaded at start: a first call while serving would take memory and time.
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    int num_cards = 0, num_usable = 0;
    if (cudaGetDeviceCount(&num_cards) != cudaSuccess) return 0;
    for (int card = 0; card < num_cards; ++card) {
        int major = 0;
        CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, card));
        num_usable += major == 9;
    }
    return num_usable == num_cards ? num_cards : 0;
}

int64_t memory_free() {
    size_t free = 0, total = 0;
    CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return static_cast<int64_t>(free);
}

void* allocate(size_t num_bytes) {
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, num_bytes);
    CHECK(status == cudaSuccess, "{} bytes of the card, of which {} are free: {}", num_bytes,
          memory_free(), cudaGetErrorString(status));
    CUDA_CHECK(cudaMemset(memory, 0, num_bytes));
    CUDA_CHECK(cudaStreamSynchronize(cudaStreamLegacy));  // queues do not wait for it
    return memory;
}

void release(void* memory) { CUDA_CHECK(cudaFree(memory)); }

void* allocate_pinned(size_t num_bytes) {
    void* memory = nullptr;
    const cudaError_t status = cudaMallocHost(&memory, num_bytes);
    CHECK(status == cudaSuccess, "{} bytes of pinned host memory: {}", num_bytes,
          cudaGetErrorString(status));
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
    CUDA_CHECK(
        cudaStreamSynchronize(cudaStreamLegacy));  // from pageable memory it may be under way
}

std::string share(void* memory) {
    cudaIpcMemHandle_t handle{};
    CUDA_CHECK(cudaIpcGetMemHandle(&handle, memory));
    return std::string(reinterpret_cast<const char*>(&handle), sizeof(handle));
}

Imported::Imported(const std::string& shared) {
    cudaIpcMemHandle_t handle{};
    if (shared.size() != sizeof(handle)) return;
    std::memcpy(&handle, shared.data(), sizeof(handle));
    if (cudaIpcOpenMemHandle(&memory_, handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess) return;
    (void)cudaGetLastError();  // told by memory(): no failure of the card
    memory_ = nullptr;
}

Imported::~Imported() {
    if (memory_ != nullptr) CUDA_CHECK(cudaIpcCloseMemHandle(memory_));
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
