#include "kernels/cpu/generic_dequant.h"
#include "kernels/cpu/generic_linear.h"
#include "kernels/cpu/generic_mla.h"
#include "kernels/cpu/generic_rows.h"
#include "kernels/cpu/ops.h"

namespace aerie::kernels {

const CpuOps& avx512_ops() {
    static constexpr CpuOps table{
        .linear_f32 = linear_block<float>,
        .linear_bf16 = linear_block<uint16_t>,
        .dequant_f32 = dequant_panel_f32,
        .dequant_bf16 = dequant_panel_bf16,
        .rms_norm = rms_norm_row,
        .sum = sum_row,
        .silu_mul = silu_mul_row,
        .accumulate = accumulate_row,
        .rope = rope_row,
        .sigmoid = sigmoid_row,
        .exp = exp_row,
        .mla_tile_f32 = mla_tile_f32_lanes,
        .mla_tile_bf16 = mla_tile_bf16_lanes,
        .mla_merge = mla_merge_lanes,
        .mla_finish_f32 = mla_finish_lanes,
        .mla_finish_bf16 = mla_finish_lanes,
    };
    return table;
}

}  // namespace aerie::kernels
