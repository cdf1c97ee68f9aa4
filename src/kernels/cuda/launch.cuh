// Kernels that are put on the card before the one in front of them in the queue has ended
// (programmatic dependent launch): what it takes to begin a kernel then costs no time.
#pragma once

#include "kernels/cuda/early_launch.h"
#include "tensor/cuda/check.h"
#include "tensor/stream.h"

namespace aerie::kernels::cuda {

// The first line of such a kernel, in each thread: returns once all earlier kernels have ended and
// their memory is seen. The next one may be put on the card from here on, where it waits likewise.
__device__ inline void after_earlier_kernels() {
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// The kernel calls after_earlier_kernels() before it touches global memory.
template <typename... Params, typename... Args>
void launch_early(const Stream& stream, dim3 grid, dim3 block, void (*kernel)(Params...),
                  Args&&... args) {
    cudaLaunchAttribute attribute = early_launch();
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = static_cast<cudaStream_t>(stream.queue());
    config.attrs = &attribute;
    config.numAttrs = 1;
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...));
}

}  // namespace aerie::kernels::cuda
