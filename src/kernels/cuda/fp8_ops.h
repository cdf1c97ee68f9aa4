// The operations of kernels.h with FP8 weights and quantised rows (W8A8). Each has a question
// first: where the answer is no, the operation goes another way.
#pragma once

#include "kernels/cuda/kernels.h"
#include "kernels/routed.h"

namespace aerie::kernels::cuda {

bool fp8_serves(const LinearTask& task);
void fp8_linear(Stream& stream, const LinearTask& task);

bool fp8_serves(ConstView x, const ExpertWeights& weights, View out);
void fp8_dense_ffn(Stream& stream, ConstView x, const ExpertWeights& weights, View out);

bool fp8_serves(const RoutedArgs& args);  // args.out aside
RoutedLines fp8_routed_lines(Stream& stream, const RoutedArgs& args);

}  // namespace aerie::kernels::cuda
