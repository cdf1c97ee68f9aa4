#include "model/step_numbers.h"

#include <algorithm>

namespace aerie::model {

StepNumbers::StepNumbers(const StepLimits& limits, Device device) {
    if (device == Device::kCpu) return;
    max_rows_ = std::max({limits.max_rows, limits.max_logits_rows, kFewRows});
    max_rows_ += max_rows_ % 2;  // so that draws lie at a multiple of 8 bytes
    const size_t bytes = static_cast<size_t>(max_rows_) *
                         (sizeof(int64_t) + 3 * sizeof(int32_t) + sizeof(kernels::DrawParams));
    staged_ = PinnedBuffer(bytes);
    on_card_ = Buffer(bytes, device);
}

// The arrays of a step of so many rows at the most, one behind the other.
void StepNumbers::place(int64_t rows) {
    const int64_t stride = rows <= kFewRows ? kFewRows : max_rows_;
    slots_ = on_card_.as<int64_t>();
    positions_ = reinterpret_cast<const int32_t*>(slots_ + stride);
    own_tokens_ = positions_ + stride;
    logits_rows_ = own_tokens_ + stride;
    draws_ = reinterpret_cast<const kernels::DrawParams*>(logits_rows_ + stride);
    own_positions_ = positions_;  // the card's rank is alone, and owns every row
}

void StepNumbers::set(Stream& stream, const StepLayout& layout,
                      const StepInput& input, int64_t padded_rows) {
    if (!stream.on_card()) {
        own_tokens_ = layout.own_tokens();
        own_positions_ = layout.own_positions();
        positions_ = layout.positions();
        slots_ = layout.slots();
        logits_rows_ = input.logits_rows.data();
        return;
    }
    const int64_t rows = layout.num_own_rows();
    const int64_t num_logits = std::ssize(input.logits_rows);
    place(std::max({rows, padded_rows, num_logits}));
    // Returns where it ends.
    const auto put = [&]<typename T>(const T* from, int64_t count, const T* on_card, T filler) {
        const auto* base = on_card_.as<std::byte>();
        auto* to = reinterpret_cast<T*>(staged_.as<std::byte>() +
                                        (reinterpret_cast<const std::byte*>(on_card) - base));
        std::copy_n(from, count, to);
        if (count < padded_rows) std::fill(to + count, to + padded_rows, filler);
        return reinterpret_cast<const std::byte*>(on_card + std::max(count, padded_rows)) - base;
    };
    put(layout.slots(), rows, slots_, int64_t{-1});
    put(layout.positions(), rows, positions_, 0);
    put(layout.own_tokens(), rows, own_tokens_, 0);
    auto end = put(input.logits_rows.data(), num_logits, logits_rows_, 0);
    if (!input.draws.empty() || padded_rows > 0)
        end = put(input.draws.data(), std::ssize(input.draws), draws_, kernels::DrawParams());
    card::copy(stream.queue(), on_card_.data(), staged_.as<std::byte>(), static_cast<size_t>(end));
}

}  // namespace aerie::model
