// What a grammar may be at most: checked before XGrammar reads it, so that no text makes it recurse
// deeply or expand without end.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "request/request.h"

namespace aerie::grammar {

constexpr size_t kMaxBytes = 256 << 10;        // of the text
constexpr size_t kMaxPatternBytes = 16 << 10;  // of a regular expression
constexpr int kMaxDepth = 64;                  // of brackets, of JSON
constexpr int kMaxAlternatives = 2000;         // of one enum, anyOf, …; of | in a pattern
constexpr int kMaxNodes = 20000;               // JSON values
constexpr int kMaxReferences = 500;            // $ref
constexpr int kMaxPatternProperties = 20;
constexpr int64_t kMaxRepeat = 10000;   // of a bound: {m,n}, minLength, maxItems, …
constexpr int64_t kMaxParts = 5000;   // of all patterns and bounds together: see check_limits()
constexpr int64_t kMostOfBound = 128;  // that a bound counts as: XGrammar counts on from there
constexpr int64_t kLoopParts = 20;  // that * and + count as: what they allow is many states at once
constexpr int kMaxBlanks = 16;      // one after the other between the parts of JSON

// The error names what was found and the most that may be. Texts hold no NUL: XGrammar reads some
// of them as C strings.
//
// Parts: of a pattern the characters, classes and names, each as often as its bounds repeat it; of a
// schema's or tag's own bounds (maxLength, …) what they are, at most kMostOfBound each. Those of all
// that is in one grammar come to kMaxParts at most: what compiling takes grows with them.
Status check_limits(const Grammar& grammar);

}  // namespace aerie::grammar
