// The tokenizer: byte-level BPE as a tokenizer.json describes it. Text in, token ids out, and back.
// The same ids as the Python `tokenizers` library gives for the same file.
//
// Everything is const after load() and may be called from any thread at once. Nothing here blocks.
// Text that is not UTF-8 is read as if each maximal invalid part were U+FFFD.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace aerie {

class Tokenizer {
  public:
    // Reads model_dir/tokenizer.json and, where there is one, model_dir/tokenizer_config.json.
    // The error names the file and the field that is missing, wrong or not supported.
    static Result<std::unique_ptr<Tokenizer>> load(const std::string& model_dir);
    ~Tokenizer();
    Tokenizer(const Tokenizer&) = delete;
    Tokenizer& operator=(const Tokenizer&) = delete;

    // Added tokens written out in the text become their ids. Nothing is added: a chat template
    // writes its own BOS.
    std::vector<int32_t> encode(std::string_view text) const;
    // Added tokens in the text are ordinary text, so that a user's words cannot become a token
    // such as the end of the sentence.
    std::vector<int32_t> encode_ordinary(std::string_view text) const;
    // encode(), with the tokens that the file wants around a text (the BOS of DeepSeek's class). A
    // text that brings its own BOS does not get a second one.
    std::vector<int32_t> encode_with_special_tokens(std::string_view text) const;

    // The bytes of the tokens, invalid UTF-8 as U+FFFD. Ids that do not exist add nothing.
    std::string decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

    // What the token adds to a text; it need not be whole characters. Empty where the id does not
    // exist. Valid as long as the tokenizer.
    std::string_view token_bytes(int32_t id) const;
    bool is_special(int32_t id) const;
    bool is_added(int32_t id) const;  // an added token, special or not: no text is split into it
    int32_t vocab_size() const;  // the largest id + 1, added tokens included
    // The id of an added token by its text, or else of the vocabulary's token with these bytes.
    std::optional<int32_t> token_id(std::string_view token) const;

    // bos_token and eos_token of tokenizer_config.json; empty where it has none.
    const std::string& bos_token() const;
    const std::string& eos_token() const;
    std::optional<int32_t> bos_id() const;
    std::optional<int32_t> eos_id() const;

  private:
    struct Impl;
    explicit Tokenizer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

// Decodes one token at a time. All that push() and finish() return, put together, equals
// decode() of all the tokens. One thread. The tokenizer must outlive it.
class IncrementalDecoder {
  public:
    IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special_tokens);

    // Text whose characters are complete. An incomplete last character is held back.
    std::string push(int32_t id);
    // What was held back, as U+FFFD. The decoder is then as new.
    std::string finish();

  private:
    const Tokenizer& tokenizer_;
    bool skip_special_tokens_;
    std::string held_back_;  // at most 3 bytes, the start of a character
};

}  // namespace aerie
