#include "kernels/sampling.h"

#include "kernels/on_card.h"

namespace aerie::kernels {

void draw(Stream& stream, const DrawArgs& args) {
    CHECK(stream.on_card(), "tokens are drawn by sample/ on a CPU");
    CHECK(args.logits.dtype == DType::kF32, "logits are {}", name_of(args.logits.dtype));
    CHECK(args.logits.cols <= kMaxDrawIds, "a vocabulary of {}, at most {} were expected",
          args.logits.cols, kMaxDrawIds);
    ON_CARD(stream, draw(stream, args));
}

}  // namespace aerie::kernels
