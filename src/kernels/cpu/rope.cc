#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_io.h"
#include "kernels/on_card.h"

namespace aerie::kernels {
namespace {

// YaRN: frequencies that turn often within the original context stay, slow ones are divided by the
// factor, with a linear ramp between.
double yarn_frequency(const RopeParams& p, int i, double inverse) {
    const auto correction = [&](double rotations) {
        return p.dim * std::log(p.original_max_position / (rotations * 2 * std::numbers::pi)) /
               (2 * std::log(p.theta));
    };
    const double low = std::max(std::floor(correction(p.beta_fast)), 0.0);
    const double high = std::min(std::ceil(correction(p.beta_slow)), p.dim - 1.0);
    const double width = high == low ? 0.001 : high - low;
    const double ramp = std::clamp((i - low) / width, 0.0, 1.0);
    return inverse / p.factor * ramp + inverse * (1 - ramp);
}

}  // namespace

double yarn_mscale(double factor, double mscale) {
    return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

RopeTable::RopeTable(const RopeParams& params, int64_t max_position, Device device)
    : dim_(params.dim),
      max_position_(max_position),
      ready_(std::make_unique<std::atomic<bool>[]>((max_position + kFill - 1) / kFill)),
      table_(static_cast<size_t>(max_position * params.dim) * sizeof(float)) {
    CHECK(dim_ > 0 && dim_ % 2 == 0, "rope dim {}", dim_);
    for (int i = 0; i < dim_ / 2; ++i) {
        const double inverse = 1.0 / std::pow(params.theta, 2.0 * i / dim_);
        frequencies_.push_back(
            static_cast<float>(params.yarn ? yarn_frequency(params, i, inverse) : inverse));
    }
    if (params.yarn)
        factor_ = static_cast<float>(yarn_mscale(params.factor, params.mscale) /
                                     yarn_mscale(params.factor, params.mscale_all_dim));
    if (device == Device::kCpu) return;
    for (int64_t part = 0; part * kFill < max_position; ++part) fill(part);
    card_table_ = Buffer(table_.size(), device);
    card::copy_now(card_table_.data(), table_.data(), table_.size());
}

void RopeTable::fill(int64_t part) const {
    const std::lock_guard lock(filling_);
    if (ready_[part].load(std::memory_order_relaxed)) return;
    auto* table = const_cast<float*>(table_.as<float>());
    for (int64_t at = part * kFill; at < std::min((part + 1) * kFill, max_position_); ++at)
        for (int i = 0; i < dim_ / 2; ++i) {
            const double angle = static_cast<float>(at) * frequencies_[i];
            table[at * dim_ + 2 * i] = static_cast<float>(std::cos(angle)) * factor_;
            table[at * dim_ + 2 * i + 1] = static_cast<float>(std::sin(angle)) * factor_;
        }
    ready_[part].store(true, std::memory_order_release);
}

void rope_to(Stream& stream, const RopeTable& table, const RopeArgs& args, View y,
             int64_t y_head_stride, int64_t y_offset) {
    ON_CARD(stream, rope_to(stream, table, args, y, y_head_stride, y_offset));
    check_float("x", args.x.dtype);
    check_float("y", y.dtype);
    CHECK(args.x.rows == y.rows, "{} rows into {}", args.x.rows, y.rows);
    const int64_t last = args.num_heads - 1;
    CHECK(last * args.head_stride + args.offset + table.dim() <= args.x.cols &&
              last * y_head_stride + y_offset + table.dim() <= y.cols,
          "{} heads past the end of a row", args.num_heads);
    const CpuOps& op = ops();
    const auto at = [](auto view, int64_t row, int64_t i) {
        return view.row(row) + i * static_cast<int64_t>(size_of(view.dtype));
    };
    parallel_rows(
        stream, y.rows, int64_t{16} * args.num_heads * table.dim(),
        [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const float* cos_sin = table.cos_sin(args.positions[i]);
                for (int h = 0; h < args.num_heads; ++h)
                    op.rope({at(args.x, i, h * args.head_stride + args.offset),
                             args.x.dtype == DType::kBF16},
                            cos_sin, table.dim(),
                            {at(y, i, h * y_head_stride + y_offset), y.dtype == DType::kBF16});
            }
        });
}

void rope(Stream& stream, const RopeTable& table, const RopeArgs& args) {
    ON_CARD(stream, rope(stream, table, args));
    rope_to(stream, table, args, args.x, args.head_stride, args.offset);
}

}  // namespace aerie::kernels
