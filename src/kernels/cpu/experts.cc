#include "kernels/experts.h"

#include <algorithm>
#include <numeric>

#include "kernels/activation.h"
#include "kernels/cpu/row_io.h"
#include "kernels/on_card.h"
#include "kernels/rows.h"

namespace aerie::kernels {

// The (row, expert) pairs sorted by expert, and what they compute: one line a pair.
struct ExpertWorkspace::Impl {
    Scratch first;    // [experts + 1] line where each expert begins
    Scratch rows;     // [lines] row of x
    Scratch offsets;  // [R + 1] of the weighted lines of each row
    Scratch lines;    // [lines] (line, weight) of each row in ascending expert
    Scratch gate_up;  // [lines, 2·I]
    Scratch product;  // [lines, I]
    Scratch result;   // [lines, hidden] float32
    Scratch tasks;
};

ExpertWorkspace::ExpertWorkspace() : impl_(std::make_unique<Impl>()) {}
ExpertWorkspace::~ExpertWorkspace() = default;
ExpertWorkspace::ExpertWorkspace(ExpertWorkspace&&) noexcept = default;
ExpertWorkspace& ExpertWorkspace::operator=(ExpertWorkspace&&) noexcept = default;

namespace {

struct ExpertRun {
    Stream& stream;
    const ExpertArgs& args;
    ExpertWorkspace::Impl& ws;
    int64_t num_lines = 0;
    int32_t* first = nullptr;
    int32_t* rows = nullptr;
    WeightedRow* lines = nullptr;

    void sort();
    void compute();
};

// Counting sort. Rows are visited in order, so the lines of an expert are in ascending row, and
// those of a row come out in ascending expert.
void ExpertRun::sort() {
    const int64_t num_rows = args.x.rows;
    const int num_experts = static_cast<int>(args.experts.size());
    first = ws.first.reserve_as<int32_t>(static_cast<size_t>(num_experts) + 2);
    rows = ws.rows.reserve_as<int32_t>(static_cast<size_t>(num_lines));
    lines = ws.lines.reserve_as<WeightedRow>(static_cast<size_t>(num_lines));
    std::fill_n(first, num_experts + 2, 0);
    for (int64_t i = 0; i < num_lines; ++i) {
        const int32_t e = args.choices[i].expert;
        CHECK(0 <= e && e < num_experts, "expert {} of {}", e, num_experts);
        ++first[e + 2];
    }
    std::partial_sum(first, first + num_experts + 2, first);
    for (int64_t r = 0; r < num_rows; ++r) {
        const int32_t begin = args.offsets[r], end = args.offsets[r + 1];
        for (int32_t i = begin; i < end; ++i) {
            const int32_t line = first[args.choices[i].expert + 1]++;
            rows[line] = static_cast<int32_t>(r);
            lines[i] = {line, args.choices[i].weight};
        }
        // Lines grow with the expert.
        std::sort(lines + begin, lines + end,
                  [](const WeightedRow& a, const WeightedRow& b) { return a.row < b.row; });
    }
}

void ExpertRun::compute() {
    const DType type = args.x.dtype;
    const int64_t inner = args.experts[0].down.k();
    const int64_t hidden = args.x.cols;
    const size_t num = static_cast<size_t>(num_lines), element = size_of(type);
    const View gate_up{ws.gate_up.reserve(num * static_cast<size_t>(2 * inner) * element), type,
                       num_lines, 2 * inner};
    const View product{ws.product.reserve(num * static_cast<size_t>(inner) * element), type,
                       num_lines, inner};
    const View result{ws.result.reserve(num * static_cast<size_t>(hidden) * sizeof(float)),
                      DType::kF32, num_lines, hidden};
    auto* tasks = ws.tasks.reserve_as<LinearTask>(args.experts.size());
    size_t count = 0;
    for (size_t e = 0; e < args.experts.size(); ++e)
        if (first[e] < first[e + 1])
            tasks[count++] = {args.x, rows + first[e], &args.experts[e].gate_up,
                              gate_up.slice_rows(first[e], first[e + 1])};
    linear_grouped(stream, {tasks, count});
    silu_mul(stream, gate_up, product);
    count = 0;
    for (size_t e = 0; e < args.experts.size(); ++e)
        if (first[e] < first[e + 1])
            tasks[count++] = {product.slice_rows(first[e], first[e + 1]), nullptr,
                              &args.experts[e].down, result.slice_rows(first[e], first[e + 1])};
    linear_grouped(stream, {tasks, count});
    accumulate_rows(
        stream,
        {.x = result, .offsets = args.offsets, .pairs = lines, .y = args.out, .overwrite = true});
}

}  // namespace

void expert_ffn(Stream& stream, const ExpertArgs& args) {
    check_float("out", args.out.dtype);
    CHECK(args.out.rows == args.x.rows && args.out.cols == args.x.cols && args.workspace != nullptr,
          "x [{}, {}], out [{}, {}]", args.x.rows, args.x.cols, args.out.rows, args.out.cols);
    if (args.x.rows == 0) return;
    CHECK(args.offsets[0] == 0, "offsets begin at {}", args.offsets[0]);
    ExpertRun run{stream, args, args.workspace->impl(), args.offsets[args.x.rows]};
    run.sort();
    if (run.num_lines > 0) {
        run.compute();
    } else {
        for (int64_t i = 0; i < args.out.rows; ++i)
            std::fill_n(args.out.row(i), row_bytes(args.out), std::byte{0});
    }
}

void routed_ffn(Stream& stream, [[maybe_unused]] const RoutedArgs& args) {
    ON_CARD(stream, routed_ffn(stream, args));
    CHECK(false, "a CPU's experts are computed by expert_ffn");
}

void dense_ffn(Stream& stream, ConstView x, const ExpertWeights& weights, View out,
               ExpertWorkspace& workspace) {
    ON_CARD(stream, dense_ffn(stream, x, weights, out));
    ExpertWorkspace::Impl& ws = workspace.impl();
    const int64_t inner = weights.down.k();
    const size_t num = static_cast<size_t>(x.rows), element = size_of(x.dtype);
    const View gate_up{ws.gate_up.reserve(num * static_cast<size_t>(2 * inner) * element), x.dtype,
                       x.rows, 2 * inner};
    const View product{ws.product.reserve(num * static_cast<size_t>(inner) * element), x.dtype,
                       x.rows, inner};
    linear(stream, {x, nullptr, &weights.gate_up, gate_up});
    silu_mul(stream, gate_up, product);
    linear(stream, {product, nullptr, &weights.down, out});
}

}  // namespace aerie::kernels
