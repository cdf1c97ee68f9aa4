#include "model/step_numbers.h"

#include <algorithm>

namespace aerie::model {

StepNumbers::StepNumbers(const StepLimits& limits, Device device) {
    if (device == Device::kCpu) return;
    const auto rows = static_cast<size_t>(limits.max_rows);
    const auto logits_rows = static_cast<size_t>(limits.max_logits_rows);
    const size_t bytes =
        rows * (sizeof(int64_t) + 2 * sizeof(int32_t)) + logits_rows * sizeof(int32_t);
    staged_ = PinnedBuffer(bytes);
    on_card_ = Buffer(bytes, device);
    const auto* base = on_card_.as<std::byte>();
    slots_ = reinterpret_cast<const int64_t*>(base);
    positions_ = reinterpret_cast<const int32_t*>(slots_ + rows);
    own_tokens_ = positions_ + rows;
    logits_rows_ = own_tokens_ + rows;
    own_positions_ = positions_;  // the card's rank is alone, and owns every row
}

void StepNumbers::set(Stream& stream, const StepLayout& layout,
                      std::span<const int32_t> logits_rows, int64_t padded_rows) {
    if (!stream.on_card()) {
        own_tokens_ = layout.own_tokens();
        own_positions_ = layout.own_positions();
        positions_ = layout.positions();
        slots_ = layout.slots();
        logits_rows_ = logits_rows.data();
        return;
    }
    const int64_t rows = layout.num_own_rows();
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
    const auto end = put(logits_rows.data(), std::ssize(logits_rows), logits_rows_, 0);
    card::copy(stream.queue(), on_card_.data(), staged_.as<std::byte>(), static_cast<size_t>(end));
}

}  // namespace aerie::model
