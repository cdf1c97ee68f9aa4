#pragma once

#include <cuda_runtime.h>

#include "base/check.h"

// A call of CUDA's runtime that must not fail (tensor/card.h).
#define CUDA_CHECK(call)                                                                     \
    do {                                                                                     \
        const cudaError_t cuda_status = (call);                                              \
        CHECK(cuda_status == cudaSuccess, "{}: {}", #call, cudaGetErrorString(cuda_status)); \
    } while (false)
