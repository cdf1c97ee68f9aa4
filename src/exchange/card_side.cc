#include "exchange/card_side.h"

#include "exchange/layout.h"
#include "kernels/routed.h"

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
        for (const Slot& other : slots_) CHECK(!other.busy, "slot {} beside another", d.slot);
        slot.busy = true;
        if (d.hidden.rows == 0) return {};
        slot.lines = kernels::routed_lines(*options_.stream, {.x = d.hidden,
                                                              .ids = d.ids,
                                                              .weights = d.weights,
                                                              .top_k = d.topk,
                                                              .first_expert = 0,
                                                              .num_experts = options_.num_experts,
                                                              .experts = experts,
                                                              .out = {}});
        return {};
    }

    Status combine(int slot_index, View sum) override {
        const Slot& slot = take(slot_index);
        if (sum.rows > 0) kernels::combine_lines(*options_.stream, slot.lines, sum, sum);
        return {};
    }

    Status combine_and_norm(int slot_index, Stream& stream, const Residual& r) override {
        const Slot& slot = take(slot_index);
        if (r.sum.rows == 0) return {};
        kernels::combine_and_norm(stream, {.lines = slot.lines,
                                           .addend = r.sum,
                                           .x = r.x,
                                           .weight = r.weight,
                                           .eps = r.eps,
                                           .y = r.normed});
        return {};
    }

    void reset() override {
        for (Slot& slot : slots_) slot.busy = false;
    }

    bool stays_in_stream() const override { return true; }

  private:
    struct Slot {
        bool busy = false;
        kernels::RoutedLines lines;  // what the experts have made
    };
    const Slot& take(int slot) {
        CHECK(slots_[slot].busy, "slot {} has no dispatch", slot);
        slots_[slot].busy = false;
        return slots_[slot];
    }

    const CardSideOptions options_;
    Slot slots_[kMaxSlots];
};

}  // namespace

std::unique_ptr<AttentionSide> make_card_side(const CardSideOptions& options) {
    return std::make_unique<CardSide>(options);
}

}  // namespace aerie::exchange
