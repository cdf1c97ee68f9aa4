// The exchange of a card whose experts are on other hosts: what it sends and gets goes through pinned
// host memory and the mailboxes of another attention side. A dispatch waits for the card, so a step with
// it is no graph; one microbatch at a time. Fabrics that write into a card's memory take its place where ranks have a card each.
#pragma once

#include <memory>

#include "exchange/attention_side.h"
#include "tensor/stream.h"

namespace aerie::exchange {

struct StagedSideOptions {
    Stream* stream = nullptr;  // the attention rank's, of a card; outlives the side
    int hidden = 0;
    int topk = 0;
    int max_rows = 0;  // of one dispatch
};

// Of a Dispatch, hidden (bfloat16), ids and weights are the card's; so is combine's sum, which may be
// bfloat16: what the mailboxes bring is added up in fp32, and that sum to it.
std::unique_ptr<AttentionSide> make_staged_side(const StagedSideOptions& options,
                                                std::unique_ptr<AttentionSide> mailboxes);

}  // namespace aerie::exchange
