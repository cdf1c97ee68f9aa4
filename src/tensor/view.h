// View and ConstView: a two-dimensional row-major window on memory that somebody else owns. Rows
// may be further apart than they are long. Passed by value; says nothing about lifetime or device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "tensor/dtype.h"

namespace aerie {

template <typename Byte>  // std::byte or const std::byte
struct BasicView {
    Byte* data = nullptr;
    DType dtype = DType::kF32;
    int64_t rows = 0;
    int64_t cols = 0;
    int64_t row_stride = 0;  // elements from one row to the next

    BasicView() = default;
    template <typename Void>  // void* or const void*
    BasicView(Void* address, DType type, int64_t num_rows, int64_t num_cols, int64_t stride)
        : data(static_cast<Byte*>(address)),
          dtype(type),
          rows(num_rows),
          cols(num_cols),
          row_stride(stride) {}
    template <typename Void>
    BasicView(Void* address, DType type, int64_t num_rows, int64_t num_cols)
        : BasicView(address, type, num_rows, num_cols, num_cols) {}
    template <typename Other>  // NOLINTNEXTLINE: a View is a ConstView
    requires(std::is_same_v<Other, std::byte> && !std::is_same_v<Byte, std::byte>)
        BasicView(const BasicView<Other>& other)
        : BasicView(other.data, other.dtype, other.rows, other.cols, other.row_stride) {}

    bool empty() const { return rows == 0 || cols == 0; }
    bool contiguous() const { return row_stride == cols || rows <= 1; }
    Byte* row(int64_t i) const {
        return data + i * row_stride * static_cast<int64_t>(size_of(dtype));
    }
    // The address of row i as elements of T, which must have dtype's size.
    template <typename T>
    auto* row_as(int64_t i) const {
        using Pointer = std::conditional_t<std::is_const_v<Byte>, const T*, T*>;
        return reinterpret_cast<Pointer>(row(i));
    }

    BasicView slice_rows(int64_t begin, int64_t end) const {
        CHECK(0 <= begin && begin <= end && end <= rows, "rows {}..{} of {}", begin, end, rows);
        return {row(begin), dtype, end - begin, cols, row_stride};
    }
    BasicView slice_cols(int64_t begin, int64_t end) const {
        CHECK(0 <= begin && begin <= end && end <= cols, "columns {}..{} of {}", begin, end, cols);
        return {data + begin * static_cast<int64_t>(size_of(dtype)), dtype, rows, end - begin,
                row_stride};
    }
};

using View = BasicView<std::byte>;
using ConstView = BasicView<const std::byte>;

}  // namespace aerie
