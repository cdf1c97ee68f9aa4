// Tensor: a view together with the memory it looks at. Move-only, zero when made.
#pragma once

#include "tensor/buffer.h"
#include "tensor/view.h"

namespace aerie {

class Tensor {
  public:
    Tensor() = default;
    Tensor(DType dtype, int64_t rows, int64_t cols, Device device = Device::kCpu)
        : buffer_(static_cast<size_t>(rows * cols) * size_of(dtype), device),
          dtype_(dtype),
          rows_(rows),
          cols_(cols) {}

    DType dtype() const { return dtype_; }
    int64_t rows() const { return rows_; }
    int64_t cols() const { return cols_; }
    size_t num_bytes() const { return buffer_.size(); }
    Device device() const { return buffer_.device(); }

    View view() { return {buffer_.data(), dtype_, rows_, cols_}; }
    ConstView view() const { return {buffer_.data(), dtype_, rows_, cols_}; }
    // The first num_rows rows: batches smaller than what the tensor was sized for.
    View first_rows(int64_t num_rows) { return view().slice_rows(0, num_rows); }

    template <typename T>
    T* data() {
        return buffer_.as<T>();
    }
    template <typename T>
    const T* data() const {
        return buffer_.as<T>();
    }

  private:
    Buffer buffer_;
    DType dtype_ = DType::kF32;
    int64_t rows_ = 0;
    int64_t cols_ = 0;
};

}  // namespace aerie
