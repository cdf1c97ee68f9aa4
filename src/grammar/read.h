// Reader: a grammar's text → XGrammar's compiled form. Private to this folder.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "grammar/compiler.h"
#include "grammar/vocabulary.h"

namespace aerie::grammar {

size_t memory_of(const Compiled& compiled);  // bytes

// Any thread.
class Reader {
  public:
    // The tokenizer must outlive it. only_check: see CompilerOptions.
    Reader(const Tokenizer& tokenizer, std::vector<int32_t> eos_ids, bool only_check);
    ~Reader();

    // Takes as long as it takes. The error is one line for the client.
    Result<std::shared_ptr<const Compiled>> read(const Grammar& grammar);

  private:
    // What XGrammar keeps of a tokenizer: made when it is first needed, which takes a while.
    struct Tokens;
    const Tokens& tokens(Markers markers);
    Result<std::shared_ptr<const Compiled>> compile(const Grammar& grammar);

    const Tokenizer& tokenizer_;
    const std::vector<int32_t> eos_ids_;
    const bool only_check_;
    std::mutex mutex_;
    std::unique_ptr<const Tokens> tokens_[2];  // [Markers]
};

}  // namespace aerie::grammar
