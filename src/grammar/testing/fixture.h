// What tests of grammars have in common: the demo's tokenizer, and texts put through a matcher.
#pragma once

#include <gtest/gtest.h>

#include <memory>
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

inline bool allows(const std::vector<uint32_t>& mask, int32_t id) {
    return (mask[static_cast<size_t>(id / 32)] >> (id % 32) & 1) != 0;
}

}  // namespace aerie::grammar
