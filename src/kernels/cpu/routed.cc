// The card alone: a CPU's experts are computed by expert_ffn.
#include "kernels/routed.h"

#ifndef AERIE_CUDA  // else cuda/experts.cu and cuda/combine.cu have them

namespace aerie::kernels {

RoutedLines routed_lines(Stream&, const RoutedArgs&) { CHECK(false, "this build has no CUDA"); }
void combine_lines(Stream&, const RoutedLines&, ConstView, View) {
    CHECK(false, "this build has no CUDA");
}
void combine_and_norm(Stream&, const CombineArgs&) { CHECK(false, "this build has no CUDA"); }

}  // namespace aerie::kernels

#endif
