#pragma once

#include <cuda_runtime.h>

namespace aerie::kernels::cuda {

// For bench/ alone, and not while anything else runs: without it a kernel's own time does not hold a wait
// for the one before. Graphs keep what held when they were made.
inline bool early_launches = true;

// Of a launch: the kernel may be put on the card before the one in front of it in the queue has
// ended (programmatic dependent launch; launch.cuh).
inline cudaLaunchAttribute early_launch() {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = early_launches ? 1 : 0;
    return attribute;
}

}  // namespace aerie::kernels::cuda
