// Rotary position embedding of adjacent pairs, with YaRN.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "tensor/buffer.h"
#include "tensor/stream.h"
#include "tensor/view.h"

namespace aerie::kernels {

struct RopeParams {
    int dim = 64;  // even
    double theta = 10000.0;
    bool yarn = false;  // the fields below count only then
    double factor = 1.0;
    int original_max_position = 4096;
    double beta_fast = 32.0;
    double beta_slow = 1.0;
    double mscale = 1.0;
    double mscale_all_dim = 0.0;
};

// 0.1 · mscale · ln(factor) + 1, and 1 where factor <= 1.
double yarn_mscale(double factor, double mscale);

// The cosines and sines of each position below max_position, in float32, times the attention factor
// yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all_dim). angle = position · frequency
// in fp32, as the reference has it. 4 · dim bytes a position, filled when first asked for; share
// one. Any thread.
class RopeTable {
  public:
    RopeTable(const RopeParams& params, int64_t max_position, Device device = Device::kCpu);

    int dim() const { return dim_; }
    int64_t max_position() const { return max_position_; }
    const float* cos_sin(int64_t position) const {  // [dim]: cos, sin of pair 0, of pair 1, …
        CHECK(0 <= position && position < max_position_, "position {} of {}", position,
              max_position_);
        if (!ready_[position / kFill].load(std::memory_order_acquire)) fill(position / kFill);
        return table_.as<float>() + position * dim_;
    }
    // The same of all positions, [max_position, dim] on the card; made for it.
    const float* on_card() const { return card_table_.as<float>(); }

  private:
    static constexpr int64_t kFill = 256;  // positions that are computed together
    void fill(int64_t part) const;

    int dim_;
    int64_t max_position_;
    float factor_ = 1.0f;
    std::vector<float> frequencies_;
    mutable std::mutex filling_;
    std::unique_ptr<std::atomic<bool>[]> ready_;
    Buffer table_;
    Buffer card_table_;  // empty on a CPU
};

// Rotates, in each row of x [rows, num_heads · head_stride], the dim values that begin at
// head · head_stride + offset, for each head. x: float32 or bfloat16, in place; fp32 inside,
// rounded once. positions: [rows], each in [0, max_position).
struct RopeArgs {
    View x;
    const int32_t* positions = nullptr;
    int num_heads = 1;
    int64_t head_stride = 0;  // elements
    int64_t offset = 0;       // elements
};
void rope(Stream& stream, const RopeTable& table, const RopeArgs& args);

// The same from x to y: head h of row i is read at x, (h · head_stride + offset), and its dim
// values are written at y, (h · y_head_stride + y_offset). Used to place q_pe and k_pe beside the
// latents.
void rope_to(Stream& stream, const RopeTable& table, const RopeArgs& args, View y,
             int64_t y_head_stride, int64_t y_offset);

}  // namespace aerie::kernels
