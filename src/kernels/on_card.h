// ON_CARD: the first line of an operation: a call with a stream of the card goes to its kernels.
#pragma once

#ifdef AERIE_CUDA
#include "kernels/cuda/kernels.h"
#define ON_CARD(stream, call) \
    if ((stream).on_card()) return cuda::call
#else
#define ON_CARD(stream, call) static_cast<void>(stream)
#endif
