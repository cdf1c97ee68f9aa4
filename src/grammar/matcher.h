// Matcher: where one sequence stands in its grammar.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "grammar/compiler.h"

namespace aerie::grammar {

// One thread at a time. The same tokens give the same masks.
//
// Where the grammar begins after the reasoning (`after_reasoning`), all tokens but those that end
// an output are allowed up to the one that holds the end of the first </think>; what stands behind
// it in that token must obey the grammar already, so tokens with anything else there are not allowed.
//
// A grammar that is fulfilled allows the end tokens beside what may continue it, and nothing else
// where nothing may. After an end token only end tokens are allowed.
class Matcher {
  public:
    static Result<std::unique_ptr<Matcher>> create(std::shared_ptr<const Compiled> compiled,
                                                   bool after_reasoning);
    ~Matcher();

    // The error says that the grammar does not allow it here; nothing is changed then.
    Status accept(int32_t token);

    // Which tokens may come next. mask: [num_words()], bit i mod 32 of word i / 32 is token i's. An
    // error where there is none.
    Status fill_mask(std::span<uint32_t> mask);
    size_t num_words() const;

    bool is_terminated() const;  // an end token has come

  private:
    struct Impl;
    explicit Matcher(std::unique_ptr<Impl> impl);
    Status accept_reasoning(int32_t token);
    void fill_reasoning(std::span<uint32_t> mask);

    std::unique_ptr<Impl> impl_;
};

}  // namespace aerie::grammar
