#include "exchange/card_side.h"

#include "exchange/layout.h"
#include "kernels/rows.h"
#include "tensor/tensor.h"

namespace aerie::exchange {
namespace {

class CardSide final : public AttentionSide {
  public:
    explicit CardSide(const CardSideOptions& options) : options_(options) {}

    Status dispatch(const Dispatch& d) override {
        Slot& slot = slots_[d.slot];
        CHECK(!slot.busy && d.hidden.rows <= options_.max_rows, "slot {}: {} rows of at most {}",
              d.slot, d.hidden.rows, options_.max_rows);
        const kernels::ExpertWeights* experts = options_.layers.at(d.layer);
        CHECK(experts != nullptr, "layer {} has no experts", d.layer);
        if (slot.rows.rows() == 0)
            slot.rows = Tensor(DType::kBF16, options_.max_rows, options_.hidden, Device::kCuda);
        slot.busy = true;
        if (d.hidden.rows == 0) return {};
        kernels::routed_ffn(*options_.stream, {.x = d.hidden,
                                               .ids = d.ids,
                                               .weights = d.weights,
                                               .top_k = d.topk,
                                               .first_expert = 0,
                                               .num_experts = options_.num_experts,
                                               .experts = experts,
                                               .out = slot.rows.first_rows(d.hidden.rows)});
        return {};
    }

    Status combine(int slot_index, View sum) override {
        Slot& slot = slots_[slot_index];
        CHECK(slot.busy, "slot {} has no dispatch", slot_index);
        slot.busy = false;
        if (sum.rows == 0) return {};
        const ConstView parts[] = {sum, slot.rows.first_rows(sum.rows)};
        kernels::sum_rows(*options_.stream, parts, sum);
        return {};
    }

    void reset() override {
        for (Slot& slot : slots_) slot.busy = false;
    }

    bool stays_in_stream() const override { return true; }

  private:
    struct Slot {
        bool busy = false;
        Tensor rows;  // [max_rows, hidden] what the experts make
    };

    const CardSideOptions options_;
    Slot slots_[kMaxSlots];
};

}  // namespace

std::unique_ptr<AttentionSide> make_card_side(const CardSideOptions& options) {
    return std::make_unique<CardSide>(options);
}

}  // namespace aerie::exchange
