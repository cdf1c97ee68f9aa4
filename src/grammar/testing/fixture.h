// What tests of grammars have in common: the demo's tokenizer, and texts put through a matcher.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "grammar/compiler.h"
#include "grammar/matcher.h"

namespace aerie::grammar {

inline const Tokenizer& demo_tokenizer() {
    static const auto* loaded = new std::unique_ptr<Tokenizer>(
        *Tokenizer::load(std::string(AERIE_SOURCE_DIR) + "/models/demo"));
    return **loaded;
}

// Waits for the compiler.
inline Outcome compile(Compiler& compiler, const Grammar& grammar) {
    struct Answer {
        std::mutex mutex;
        std::condition_variable changed;
        std::optional<Outcome> outcome;
    };
    auto answer = std::make_shared<Answer>();  // shared with the compiler's thread
    compiler.compile(grammar, [answer](const Outcome& outcome) {
        std::lock_guard lock(answer->mutex);
        answer->outcome = outcome;
        answer->changed.notify_all();
    });
    std::unique_lock lock(answer->mutex);
    answer->changed.wait(lock, [&] { return answer->outcome.has_value(); });
    return *answer->outcome;
}

inline bool allows(const std::vector<uint32_t>& mask, int32_t id) {
    return (mask[static_cast<size_t>(id / 32)] >> (id % 32) & 1) != 0;
}

}  // namespace aerie::grammar
