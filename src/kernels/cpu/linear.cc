#include "kernels/linear.h"

#include <algorithm>

#include "kernels/cpu/packing.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/row_io.h"
#include "kernels/on_card.h"

namespace aerie::kernels {
namespace {

constexpr int64_t kExpandBytes = 512 << 10;  // of expanded FP8 panels, in the second cache
constexpr int64_t kMaxRows = 256;  // of one piece: what is reused from one panel to the next

// A task cut into pieces [row parts × panel parts].
struct Cut {
    int64_t rows;    // of a piece
    int64_t panels;  // of a piece
    int64_t row_parts;
    int64_t panel_parts;
    int64_t num_pieces() const { return row_parts * panel_parts; }
};

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// In bytes of weight read or the time of as many: decides only how far to cut.
int64_t cost_of(const LinearTask& t) {
    const int64_t weights = t.w->n() * t.w->k() * static_cast<int64_t>(size_of(t.w->storage()));
    return weights * std::max<int64_t>(1, t.y.rows / 4);
}

Cut cut(const LinearTask& t, int64_t wanted) {
    const int64_t panels = LinearPacking::num_panels(*t.w);
    Cut c;
    c.rows = std::min(t.y.rows, kMaxRows);
    c.row_parts = ceil_div(t.y.rows, c.rows);
    const int64_t panel_parts = std::clamp<int64_t>(ceil_div(wanted, c.row_parts), 1, panels);
    c.panels = ceil_div(ceil_div(panels, panel_parts), 2) * 2;  // pairs of panels share their x
    c.panel_parts = ceil_div(panels, c.panels);
    return c;
}

void run_piece(const CpuOps& op, const LinearTask& t, const Cut& c, int64_t piece) {
    static thread_local Scratch expanded;
    const LinearWeight& w = *t.w;
    const int64_t row = piece / c.panel_parts * c.rows;
    const int64_t panel = piece % c.panel_parts * c.panels;
    const int64_t panels = std::min(c.panels, LinearPacking::num_panels(w) - panel);
    const bool f32 = w.compute() == DType::kF32;
    const int64_t element = static_cast<int64_t>(size_of(t.x.dtype));
    LinearBlock block{
        .x = t.x_rows != nullptr ? t.x.data : t.x.data + row * t.x.row_stride * element,
        .x_stride = t.x.row_stride,
        .x_rows = t.x_rows != nullptr ? t.x_rows + row : nullptr,
        .m = std::min(c.rows, t.y.rows - row),
        .w = LinearPacking::panel(w, panel),
        .panel_stride = LinearPacking::compute_bytes(w),
        .k = w.k(),
        .n = std::min(w.n() - panel * kPanelCols, panels * kPanelCols),
        .y = t.y.row(row) + panel * kPanelCols * static_cast<int64_t>(size_of(t.y.dtype)),
        .y_stride = t.y.row_stride,
        .y_bf16 = t.y.dtype == DType::kBF16,
    };
    const auto multiply = f32 ? op.linear_f32 : op.linear_bf16;
    if (w.storage() != DType::kF8E4M3) {
        multiply(block);
        return;
    }
    // FP8: a few panels at a time, expanded where the multiplication finds them in a near cache.
    const int64_t at_once = block.panel_stride <= kExpandBytes / 4 ? 4 : 2;
    auto* memory = static_cast<std::byte*>(
        expanded.reserve(static_cast<size_t>(at_once * block.panel_stride)));
    const int64_t last = block.n;
    std::byte* y = static_cast<std::byte*>(block.y);
    for (int64_t p = 0; p < panels; p += at_once) {
        const int64_t here = std::min(at_once, panels - p);
        for (int64_t i = 0; i < here; ++i)
            (f32 ? op.dequant_f32 : op.dequant_bf16)(
                LinearPacking::dequant(w, panel + p + i, memory + i * block.panel_stride));
        block.w = memory;
        block.n = std::min(last - p * kPanelCols, here * kPanelCols);
        block.y = y + p * kPanelCols * static_cast<int64_t>(size_of(t.y.dtype));
        multiply(block);
    }
}

void check_task(const LinearTask& t) {
    CHECK(t.w != nullptr && !t.w->empty(), "a linear task without a weight");
    CHECK(t.x.dtype == t.w->compute() && t.x.cols == t.w->k(), "x [{}, {}] {}, weight [{}, {}] {}",
          t.x.rows, t.x.cols, name_of(t.x.dtype), t.w->n(), t.w->k(), name_of(t.w->compute()));
    check_float("y", t.y.dtype);
    CHECK(t.y.cols == t.w->n() && (t.x_rows != nullptr || t.x.rows == t.y.rows),
          "y [{}, {}] from x [{}, {}] and weight [{}, {}]", t.y.rows, t.y.cols, t.x.rows, t.x.cols,
          t.w->n(), t.w->k());
}

}  // namespace

void linear(Stream& stream, const LinearTask& task) {
    ON_CARD(stream, linear(stream, task));
    linear_grouped(stream, {&task, 1});
}

void linear_grouped(Stream& stream, std::span<const LinearTask> tasks) {
    ON_CARD(stream, linear_grouped(stream, tasks));
    const CpuOps& op = ops();
    int64_t total = 0;
    for (const LinearTask& t : tasks) {
        check_task(t);
        total += t.y.rows == 0 ? 0 : cost_of(t);
    }
    if (total == 0) return;
    // About four pieces a thread, none below the grain.
    const int64_t piece_cost =
        std::max(kGrainBytes, total / (int64_t{4} * stream.num_threads()) + 1);
    static thread_local Scratch cuts_memory, first_memory;
    auto* cuts = cuts_memory.reserve_as<Cut>(tasks.size());
    auto* first = first_memory.reserve_as<int64_t>(tasks.size() + 1);  // piece of each task
    first[0] = 0;
    for (size_t i = 0; i < tasks.size(); ++i) {
        const bool some = tasks[i].y.rows > 0;
        if (some)
            cuts[i] = cut(tasks[i], stream.num_threads() == 1 || total <= kGrainBytes
                                        ? 1
                                        : ceil_div(cost_of(tasks[i]), piece_cost));
        first[i + 1] = first[i] + (some ? cuts[i].num_pieces() : 0);
    }
    const auto run = [&](int64_t piece) {
        const int64_t i = std::upper_bound(first, first + tasks.size() + 1, piece) - first - 1;
        run_piece(op, tasks[i], cuts[i], piece - first[i]);
    };
    const int64_t num_pieces = first[tasks.size()];
    if (total <= kGrainBytes)
        for (int64_t piece = 0; piece < num_pieces; ++piece) run(piece);
    else
        stream.parallel_for(num_pieces, run);
}

}  // namespace aerie::kernels
