// Compiler: a request's grammar → what its matchers share. XGrammar does the work; nothing of it is
// seen outside this folder, its exceptions neither.
//
// A compilation runs on a thread of the compiler's own and is given up after a limit: its thread
// ends when it ends, as there is no way to stop it, but nobody waits for it. What keeps such
// threads rare is limits.h. Results are kept, errors too, up to a number of bytes; those used
// longest ago go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "request/request.h"
#include "tokenizer/tokenizer.h"

namespace aerie::grammar {

struct Compiled;  // const, any thread

struct Outcome {
    std::shared_ptr<const Compiled> compiled =
        nullptr;             // shared by the cache and the matchers; null: an error
    std::string error = {};  // for the client: what is wrong with the grammar
    bool busy = false;       // the error is that others came before it: try again later
    double seconds = 0;      // that it took
};

struct CompilerOptions {
    std::vector<int32_t> eos_ids;  // what ends an output where the grammar lets it end
    int num_threads = 2;
    double limit_s = 10;  // of a compilation; as long again may it wait for its turn
    size_t max_cache_bytes = 256 << 20;
    // Which grammars are right is all that is asked: the masks are left out, which take longest.
    bool only_check = false;
    // Test hook: runs before each compilation, on its thread, as part of it.
    std::function<void(const Grammar&)> before_read = nullptr;
};

// Any thread.
class Compiler {
  public:
    // The tokenizer must outlive it.
    Compiler(const Tokenizer& tokenizer, CompilerOptions options);
    // Waits for its threads, at most a second: one in a compilation that never ends is left behind.
    // Of what still waits `done` is not called.
    ~Compiler();
    Compiler(const Compiler&) = delete;
    Compiler& operator=(const Compiler&) = delete;

    // What is known already; nothing: compile it.
    std::optional<Outcome> find(const Grammar& grammar);

    // Calls done once: at once where the outcome is known, else on a thread of the compiler, which
    // it must not hold up. Equal grammars are compiled once.
    void compile(const Grammar& grammar, std::function<void(const Outcome&)> done);
    // Blocks, as long as a compilation may wait and take.
    Outcome compile(const Grammar& grammar);

  private:
    struct Impl;
    // Shared with its threads, which may outlive it.
    std::shared_ptr<Impl> impl_;
};

}  // namespace aerie::grammar
