#include "transfer/policy.h"

namespace aerie::transfer {
namespace {

// All pages that a cache can give: the last token is always computed.
int whole_pages(int num_tokens, int page_size) {
    return num_tokens <= 0 ? 0 : (num_tokens - 1) / page_size * page_size;
}

}  // namespace

Choice choose(Policy policy, const TransferFacts& facts) {
    if (policy == Policy::kActive) return {Mode::kPush, Reason::kConfigured};
    if (policy == Policy::kPassive) return {Mode::kPull, Reason::kConfigured};
    const int prefix = whole_pages(facts.num_before, facts.page_size);
    if (prefix > 0 && facts.num_cached >= prefix) return {Mode::kPull, Reason::kPrefixHeld};
    const int whole = whole_pages(facts.num_tokens, facts.page_size);
    if (whole > 0 && facts.num_cached >= whole) return {Mode::kPull, Reason::kPromptCached};
    if (facts.prefill_idle && facts.waited_s >= kOfferWaitSeconds) {
        return {Mode::kPull, Reason::kLateBinding};
    }
    return {Mode::kPush, Reason::kDefault};
}

}  // namespace aerie::transfer
