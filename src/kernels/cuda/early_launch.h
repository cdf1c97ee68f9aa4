#pragma once

#include <cuda_runtime.h>

namespace aerie::kernels::cuda {

// Of a launch: the kernel may be put on the card before the one in front of it in the queue has
// ended (programmatic dependent launch; launch.cuh).
inline cudaLaunchAttribute early_launch() {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    return attribute;
}

}  // namespace aerie::kernels::cuda
