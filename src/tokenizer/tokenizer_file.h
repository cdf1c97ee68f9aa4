// What a tokenizer.json and its tokenizer_config.json say, checked: whatever aerie would do
// differently from the file is an error here that names the field.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace aerie {

struct AddedToken {
    int32_t id = -1;
    std::string content;
    bool special = false;     // left out of a text where skip_special_tokens asks for it
    bool normalized = false;  // matched after those that are not normalized, in what these left
    bool lstrip = false;      // takes the white space before it as well
    bool rstrip = false;      // and after it
};

// One step of the pre-tokeniser: cuts a piece of text into pieces. ByteLevel is not a step: it
// changes how bytes are written, which only the vocabulary's reader needs to know.
struct SplitStep {
    enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
    std::string pattern;
    bool is_regex = true;
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;
};

struct VocabToken {
    std::string bytes;
    int32_t id = -1;
    bool byte_level = true;  // false: merges cannot make it, it is its own UTF-8 bytes
};

struct TokenizerFile {
    std::vector<AddedToken> added_tokens;
    std::vector<SplitStep> split_steps;
    std::vector<VocabToken> vocab;
    std::vector<std::pair<std::string, std::string>> merges;  // bytes; best first
    bool ignore_merges = false;  // a word that is a token is that token, whatever the merges say
    std::vector<std::string> tokens_before, tokens_after;  // around a text, where asked for
    std::string bos_token, eos_token;
};

Result<TokenizerFile> read_tokenizer_file(const std::string& model_dir);

}  // namespace aerie
