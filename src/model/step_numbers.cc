#include "model/step_numbers.h"

#include <cstring>

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
                      std::span<const int32_t> logits_rows) {
    if (!stream.on_card()) {
        own_tokens_ = layout.own_tokens();
        own_positions_ = layout.own_positions();
        positions_ = layout.positions();
        slots_ = layout.slots();
        logits_rows_ = logits_rows.data();
        return;
    }
    const auto rows = static_cast<size_t>(layout.num_own_rows());
    auto* to = staged_.as<std::byte>();
    const auto put = [&](const void* from, size_t count, const void* on_card, size_t element) {
        const size_t at = static_cast<const std::byte*>(on_card) - on_card_.as<std::byte>();
        std::memcpy(to + at, from, count * element);
        return at + count * element;
    };
    put(layout.slots(), rows, slots_, sizeof(int64_t));
    put(layout.positions(), rows, positions_, sizeof(int32_t));
    put(layout.own_tokens(), rows, own_tokens_, sizeof(int32_t));
    const size_t end = put(logits_rows.data(), logits_rows.size(), logits_rows_, sizeof(int32_t));
    card::copy(stream.queue(), on_card_.data(), to, end);
}

}  // namespace aerie::model
