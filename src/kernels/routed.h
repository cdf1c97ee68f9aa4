// routed_ffn of the card in its two halves, so that one kernel adds up what a row's experts made,
// adds it to the residual stream and norms that.
#pragma once

#include "kernels/experts.h"

namespace aerie::kernels {

// What the experts made of rows, not yet weighed or added up, in the stream's own memory.
struct RoutedLine {
    int32_t line;  // of the results; −1: the expert is not here
    float weight;
};
struct RoutedLines {
    ConstView results;                    // [lines, hidden] float32 or bfloat16, in no order
    const RoutedLine* choices = nullptr;  // [R, top_k] by ascending expert, those not here last
    int top_k = 1;
};

// Everything of routed_ffn but the adding up; args.out is not used. The result is valid until the
// stream's next call of this or of routed_ffn; what args point to may go.
RoutedLines routed_lines(Stream& stream, const RoutedArgs& args);

// out = round(Σ weight · line), as routed_ffn makes it; with `addend`, which may be out,
// round(addend + that).
void combine_lines(Stream& stream, const RoutedLines& lines, ConstView addend, View out);

// combine_lines to bfloat16, then x = round(x + it) and y = rms_norm(x): the bits of combine_lines
// and add_partials_and_norm, without what is between them in memory.
struct CombineArgs {
    RoutedLines lines;
    ConstView addend;               // [R, hidden] bfloat16
    View x;                         // [R, hidden] bfloat16
    const float* weight = nullptr;  // of the norm, [hidden]
    float eps = 0;
    View y;  // [R, hidden] bfloat16
};
void combine_and_norm(Stream& stream, const CombineArgs& args);

}  // namespace aerie::kernels
