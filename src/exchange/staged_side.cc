#include "exchange/staged_side.h"

#include <cstring>
#include <utility>

#include "kernels/rows.h"
#include "tensor/pinned_buffer.h"
#include "tensor/tensor.h"

namespace aerie::exchange {
namespace {

class StagedSide final : public AttentionSide {
  public:
    StagedSide(const StagedSideOptions& options, std::unique_ptr<AttentionSide> mailboxes)
        : options_(options), mailboxes_(std::move(mailboxes)) {
        CHECK(options.stream->on_card(), "rows of a CPU need no staging");
        const auto rows = static_cast<size_t>(options.max_rows);
        const size_t values = rows * static_cast<size_t>(options.hidden);
        const size_t choices = rows * static_cast<size_t>(options.topk);
        hidden_ = PinnedBuffer(values * size_of(DType::kBF16));
        ids_ = PinnedBuffer(choices * sizeof(int32_t));
        weights_ = PinnedBuffer(choices * sizeof(float));
        sum_ = PinnedBuffer(values * sizeof(float));
        sum_on_card_ = Tensor(DType::kF32, options.max_rows, options.hidden, Device::kCuda);
    }

    Status dispatch(const Dispatch& d) override {
        CHECK(d.slot == 0, "microbatch {} of a card, which has one at a time", d.slot);
        const int64_t rows = d.hidden.rows;
        CHECK(rows <= options_.max_rows && d.topk == options_.topk, "{} rows of at most {}", rows,
              options_.max_rows);
        if (rows > 0) {
            const auto choices = static_cast<size_t>(rows * d.topk);
            fetch(hidden_, d.hidden.data,
                  static_cast<size_t>(rows * d.hidden.cols) * size_of(DType::kBF16));
            fetch(ids_, d.ids, choices * sizeof(int32_t));
            fetch(weights_, d.weights, choices * sizeof(float));
            card::synchronize(options_.stream->queue());
        }
        Dispatch staged = d;
        staged.hidden = ConstView(hidden_.as<void>(), DType::kBF16, rows, options_.hidden);
        staged.ids = ids_.as<int32_t>();
        staged.weights = weights_.as<float>();
        return mailboxes_->dispatch(staged);
    }

    Status combine(int slot_index, View sum) override {
        // The copy from it to the card has been made: a dispatch came after, and waited.
        const size_t bytes = static_cast<size_t>(sum.rows * sum.cols) * sizeof(float);
        std::memset(sum_.as<void>(), 0, bytes);
        RETURN_IF_ERROR(mailboxes_->combine(
            slot_index, View(sum_.as<void>(), DType::kF32, sum.rows, options_.hidden)));
        if (sum.rows == 0) return {};
        const View on_card = sum_on_card_.first_rows(sum.rows);
        card::copy(options_.stream->queue(), on_card.data, sum_.as<void>(), bytes);
        const ConstView parts[] = {sum, on_card};
        kernels::sum_rows(*options_.stream, parts, sum);
        return {};
    }

    void reset() override { mailboxes_->reset(); }

  private:
    void fetch(PinnedBuffer& into, const void* from, size_t num_bytes) {
        card::copy(options_.stream->queue(), into.as<void>(), from, num_bytes);
    }

    const StagedSideOptions options_;
    const std::unique_ptr<AttentionSide> mailboxes_;
    PinnedBuffer hidden_, ids_, weights_;  // of a dispatch: [max_rows, hidden], [max_rows, topk] twice
    PinnedBuffer sum_;                     // [max_rows, hidden] f32, of a combine
    Tensor sum_on_card_;
};

}  // namespace

std::unique_ptr<AttentionSide> make_staged_side(const StagedSideOptions& options,
                                                std::unique_ptr<AttentionSide> mailboxes) {
    return std::make_unique<StagedSide>(options, std::move(mailboxes));
}

}  // namespace aerie::exchange
