#include "grammar/vocabulary.h"

#include <utility>

namespace aerie::grammar {
namespace {

// No UTF-8 holds this byte, so no text of a grammar matches a token that begins with it.
constexpr char kSeal = '\xff';

xgrammar::TokenizerInfo tokenizer_info(const Tokenizer& tokenizer,
                                       const std::vector<int32_t>& eos_ids, Markers markers) {
    std::vector<std::string> tokens(static_cast<size_t>(tokenizer.vocab_size()));
    for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
        if (tokenizer.is_special(id)) continue;  // empty: in no text
        if (tokenizer.is_added(id) && markers == Markers::kAreTokens) tokens[id] = kSeal;
        tokens[id] += tokenizer.token_bytes(id);
    }
    return xgrammar::TokenizerInfo(tokens, xgrammar::VocabType::RAW, tokenizer.vocab_size(),
                                   eos_ids);
}

std::vector<int32_t> existing(std::vector<int32_t> ids, int32_t vocab_size) {
    std::erase_if(ids, [&](int32_t id) { return id < 0 || id >= vocab_size; });
    return ids;
}

}  // namespace

Vocabulary::Vocabulary(const Tokenizer& tokenizer, std::vector<int32_t> eos_ids, Markers markers)
    : eos_ids_(existing(std::move(eos_ids), tokenizer.vocab_size())),
      info_(tokenizer_info(tokenizer, eos_ids_, markers)) {
    for (int32_t id = 0; id < size(); ++id) {
        const std::string_view bytes = this->bytes(id);
        const size_t whole = bytes.find(kReasoningEnd);
        if (whole != bytes.npos && whole + kReasoningEnd.size() < bytes.size()) {
            ending_reasoning_[0].push_back(id);
        }
        for (size_t num_before = 1; num_before < kReasoningEnd.size(); ++num_before) {
            const std::string_view left = kReasoningEnd.substr(num_before);
            if (bytes.starts_with(left) && bytes.size() > left.size()) {
                ending_reasoning_[num_before].push_back(id);
            }
        }
    }
}

std::string_view Vocabulary::bytes(int32_t id) const {
    if (id < 0 || id >= size()) return {};
    const std::string_view bytes = info_.GetDecodedVocab()[static_cast<size_t>(id)];
    return bytes.starts_with(kSeal) && bytes.size() > 1 ? bytes.substr(1) : bytes;
}

}  // namespace aerie::grammar
