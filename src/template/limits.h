// What one template and one rendering may use, so that neither a hostile template nor a hostile
// conversation holds up the server. Far beyond what real ones need.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aerie::jinja {

inline constexpr size_t kMaxSourceBytes = 4 << 20;
inline constexpr size_t kMaxStringBytes = 128 << 20;  // of any one string, the result included
inline constexpr int64_t kMaxSteps = 20'000'000;     // nodes evaluated, elements and 64 B visited
inline constexpr int kMaxSyntaxDepth = 150;          // of brackets and blocks
inline constexpr int kMaxChain = 300;                // of operators, subscripts, calls, filters
inline constexpr int kMaxEvaluationDepth = 500;      // of all these, through macros
inline constexpr int kMaxValueDepth = 250;            // of lists in lists
inline constexpr int64_t kMaxRange = 100'000;         // of range(), as in Jinja's sandbox

}  // namespace aerie::jinja
