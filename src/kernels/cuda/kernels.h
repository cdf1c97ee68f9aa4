// The card's side of each contract of this folder: what a call with a stream of the card goes to.
// All arguments' memory is the card's, spans and the structs themselves are the host's and may go
// when the call returns. Calls put work on the stream's queue and do not wait, so that a step can
// be captured as a graph.
#pragma once

#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/experts.h"
#include "kernels/gate.h"
#include "kernels/kv_cache.h"
#include "kernels/linear.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "kernels/rows.h"
#include "kernels/sampling.h"
#include "kernels/time_stamp.h"

namespace aerie::kernels::cuda {

void gather_rows(Stream& stream, ConstView table, const int32_t* ids, View out);
void copy_rows(Stream& stream, ConstView x, View out);
void sum_rows(Stream& stream, std::span<const ConstView> parts, View out);
void rms_norm(Stream& stream, ConstView x, const float* weight, float eps, View y);
void add_partials(Stream& stream, View x, std::span<const ConstView> partials);
void add_partials_and_norm(Stream& stream, View x, std::span<const ConstView> partials,
                           const float* weight, float eps, View y);
void rope(Stream& stream, const RopeTable& table, const RopeArgs& args);
void rope_to(Stream& stream, const RopeTable& table, const RopeArgs& args, View y,
             int64_t y_head_stride, int64_t y_offset);
void silu_mul(Stream& stream, ConstView gate_up, View y);
void gate(Stream& stream, const GateArgs& args);
void kv_write(Stream& stream, const KvPool& pool, ConstView rows, const int64_t* slots);
void linear(Stream& stream, const LinearTask& task);
// x_rows null; all tasks have one shape, and x, w and y of one type.
void linear_grouped(Stream& stream, std::span<const LinearTask> tasks);
LinearWeight pack_linear(std::span<const LinearSource> sources, bool keep_fp8);
void dense_ffn(Stream& stream, ConstView x, const ExpertWeights& weights, View out);
void mla_attention(Stream& stream, const MlaArgs& args);
void routed_ffn(Stream& stream, const RoutedArgs& args);
void draw(Stream& stream, const DrawArgs& args);
void time_stamp(Stream& stream, int64_t* at);

}  // namespace aerie::kernels::cuda
