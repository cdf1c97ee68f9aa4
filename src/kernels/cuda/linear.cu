#include "kernels/cuda/fp8_ops.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row_io.cuh"

namespace aerie::kernels::cuda {
namespace {

void check_task(const LinearTask& t) {
    CHECK(t.w != nullptr && !t.w->empty(), "a linear task without a weight");
    CHECK(t.w->device() == Device::kCuda, "the weight [{}, {}] is not on the card", t.w->n(),
          t.w->k());
    CHECK(t.x.dtype == DType::kBF16 && t.x.cols == t.w->k(), "x [{}, {}] {}, weight [{}, {}]",
          t.x.rows, t.x.cols, name_of(t.x.dtype), t.w->n(), t.w->k());
    check_float("y", t.y);
    CHECK(t.y.cols == t.w->n() && (t.x_rows != nullptr || t.x.rows == t.y.rows),
          "y [{}, {}] from x [{}, {}] and weight [{}, {}]", t.y.rows, t.y.cols, t.x.rows, t.x.cols,
          t.w->n(), t.w->k());
}

GemmShape shape_of(const LinearTask& t) {
    return {.rows = t.y.rows,
            .n = t.w->n(),
            .k = t.w->k(),
            .x_stride = t.x.row_stride,
            .y_stride = t.y.row_stride,
            .w_fp8 = t.w->storage() == DType::kF8E4M3,
            .y_bf16 = t.y.dtype == DType::kBF16};
}
GemmTask task_of(const LinearTask& t) { return {t.x.data, t.w->data(), t.w->scales(), t.y.data}; }

bool same_shape(const LinearTask& a, const LinearTask& b) {
    const GemmShape s = shape_of(a), t = shape_of(b);
    return s.rows == t.rows && s.n == t.n && s.k == t.k && s.x_stride == t.x_stride &&
           s.y_stride == t.y_stride && s.w_fp8 == t.w_fp8 && s.y_bf16 == t.y_bf16;
}

}  // namespace

void linear(Stream& stream, const LinearTask& task) {
    check_task(task);
    if (stream.quantises_rows() && fp8_serves(task)) return fp8_linear(stream, task);
    const GemmTask one = task_of(task);
    gemm(stream, shape_of(task), {&one, 1}, task.x_rows);
}

void linear_grouped(Stream& stream, std::span<const LinearTask> tasks) {
    for (size_t begin = 0; begin < tasks.size(); begin += kMaxGemmTasks) {
        const size_t end = std::min(tasks.size(), begin + kMaxGemmTasks);
        GemmTask group[kMaxGemmTasks];
        for (size_t i = begin; i < end; ++i) {
            check_task(tasks[i]);
            CHECK(tasks[i].x_rows == nullptr && same_shape(tasks[i], tasks[0]),
                  "task {} of {} has another shape than the first, or gathers", i, tasks.size());
            group[i - begin] = task_of(tasks[i]);
        }
        gemm(stream, shape_of(tasks[0]), {group, end - begin});
    }
}

}  // namespace aerie::kernels::cuda
