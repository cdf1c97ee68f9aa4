// Private to this folder.
#pragma once

#include <xgrammar/compiler.h>

#include <memory>

#include "grammar/vocabulary.h"

namespace aerie::grammar {

struct Compiled {
    xgrammar::CompiledGrammar grammar;
    std::shared_ptr<const Vocabulary> vocabulary;  // shared by all of the same compiler
};

}  // namespace aerie::grammar
