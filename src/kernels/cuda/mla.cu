// Absorbed attention on FlashInfer's kernel for Hopper. Its plan is ours (mla_plan.h).
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <flashinfer/attention/mla_params.cuh>
// after its parameters
#include <flashinfer/attention/mla_hopper.cuh>

#include "kernels/cuda/mla_step.h"
#include "tensor/cuda/check.h"

namespace aerie::kernels {
namespace {

constexpr int kLatent = 512, kRope = 64, kWidth = kLatent + kRope;
using Params = flashinfer::MLAParams<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16, int32_t>;

void check_args(const MlaArgs& a) {
    const MlaStep::Shape& s = a.step->impl().shape;
    CHECK(a.cp_size == 1, "cp_size {} on the card", a.cp_size);
    CHECK(a.heads == s.heads && a.page_size == s.page_size && a.latent_dim == kLatent &&
              a.rope_dim == kRope,
          "{} heads, pages of {}, latent {}, rope {}; prepared for {} and {}", a.heads, a.page_size,
          a.latent_dim, a.rope_dim, s.heads, s.page_size);
    CHECK(a.q.dtype == DType::kBF16 && a.out.dtype == DType::kBF16 &&
              a.q.cols == int64_t{a.heads} * kWidth && a.out.cols == int64_t{a.heads} * kLatent,
          "q [{}, {}] {}, out [{}, {}] {}", a.q.rows, a.q.cols, name_of(a.q.dtype), a.out.rows,
          a.out.cols, name_of(a.out.dtype));
    CHECK(a.q.row_stride % 8 == 0 && a.out.row_stride % 8 == 0, "rows {} and {} apart",
          a.q.row_stride, a.out.row_stride);
}

}  // namespace

void cuda::absorbed_attention(Stream& stream, const MlaArgs& a) {
    check_args(a);
    const MlaStep::Impl& m = a.step->impl();
    const MlaPlan::Layout& l = m.layout;
    CHECK(l.num_teams > 0, "no absorbed row was prepared");
    // The kernel writes nothing that these pointers to inputs and plan lead to.
    const auto ints = [&](int64_t offset) {
        return const_cast<int32_t*>(m.ints.as<int32_t>()) + offset;
    };
    Params p;
    p.q_nope = const_cast<__nv_bfloat16*>(reinterpret_cast<const __nv_bfloat16*>(a.q.data));
    p.q_pe = p.q_nope + kLatent;
    p.ckv = const_cast<__nv_bfloat16*>(static_cast<const __nv_bfloat16*>(a.kv_layer));
    p.kpe = p.ckv + kLatent;
    p.partial_o = const_cast<__nv_bfloat16*>(m.partial.as<__nv_bfloat16>());
    p.partial_lse = const_cast<float*>(m.partial_lse.as<float>());
    p.final_o = reinterpret_cast<__nv_bfloat16*>(a.out.data);
    p.final_lse = a.lse;
    p.q_indptr = ints(l.q_row);
    p.kv_indptr = ints(l.pages);
    p.partial_indptr = ints(l.partial);
    p.merge_packed_offset_start = ints(l.merge_begin);
    p.merge_packed_offset_end = ints(l.merge_end);
    p.merge_partial_packed_offset_start = ints(l.merge_partial_begin);
    p.merge_partial_packed_offset_end = ints(l.merge_partial_end);
    p.merge_partial_stride = ints(l.merge_stride);
    p.kv_indices = ints(l.page_table);
    p.q_len = ints(l.q_len);
    p.kv_len = ints(l.kv_len);
    p.q_start = ints(l.q_start);
    p.kv_start = ints(l.kv_start);
    p.kv_end = ints(l.kv_end);
    p.work_indptr = ints(l.work_begin);
    p.block_size = flashinfer::uint_fastdiv(a.page_size);
    p.num_heads = flashinfer::uint_fastdiv(a.heads);
    p.q_nope_stride_n = p.q_pe_stride_n = static_cast<uint32_t>(a.q.row_stride);
    p.q_nope_stride_h = p.q_pe_stride_h = kWidth;
    p.ckv_stride_page = p.kpe_stride_page = a.page_size * kWidth;
    p.ckv_stride_n = p.kpe_stride_n = kWidth;
    p.o_stride_n = static_cast<uint32_t>(a.out.row_stride);
    p.o_stride_h = kLatent;
    p.sm_scale = a.scale;
    p.return_lse_base_on_e = true;
    CUDA_CHECK((
        flashinfer::mla::BatchMLAPageAttentionHopper<flashinfer::MaskMode::kCausal, kLatent, kRope>(
            p, l.width, l.num_teams, static_cast<cudaStream_t>(stream.queue()))));
}

}  // namespace aerie::kernels
