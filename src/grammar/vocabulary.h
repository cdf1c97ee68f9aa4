// Vocabulary: the tokenizer's tokens as XGrammar takes them. Private to this folder.
#pragma once

#include <xgrammar/tokenizer_info.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace aerie::grammar {

// How tokens that stand for themselves (<｜tool▁sep｜>, <think>: added, not special) are seen.
enum class Markers {
    kAreText,    // by the text that they are written as
    kAreTokens,  // by their ids alone: no text of a grammar, no string of a JSON value holds one
};

inline constexpr std::string_view kReasoningEnd = "</think>";

class Vocabulary {
  public:
    Vocabulary(const Tokenizer& tokenizer, std::vector<int32_t> eos_ids, Markers markers);

    const xgrammar::TokenizerInfo& info() const { return info_; }
    const std::vector<int32_t>& eos_ids() const { return eos_ids_; }
    int size() const { return info_.GetVocabSize(); }
    // What the token adds to the text; empty for special ones.
    std::string_view bytes(int32_t id) const;
    // The tokens that complete kReasoningEnd, of which `num_before` bytes stand already, and go on
    // behind it. num_before: 0 … its size - 1; 0: they hold all of it, anywhere.
    const std::vector<int32_t>& ending_reasoning(size_t num_before) const {
        return ending_reasoning_[num_before];
    }

  private:
    const std::vector<int32_t> eos_ids_;
    const xgrammar::TokenizerInfo info_;
    std::array<std::vector<int32_t>, kReasoningEnd.size()> ending_reasoning_;
};

}  // namespace aerie::grammar
