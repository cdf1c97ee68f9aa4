// Memory of the card and calls on it, for the tests of this folder: each compares a call on the
// card with the same call on the CPU.
#pragma once

#include <gtest/gtest.h>

#include "kernels/linear.h"
#include "kernels/test_support.h"
#include "tensor/card.h"

namespace aerie::kernels::testing {

// Where the machine has no card the tests are skipped.
class OnCard : public ::testing::Test {
  protected:
    void SetUp() override {
        if (card::count() == 0) GTEST_SKIP() << "no card on this machine";
        stream_ = std::make_unique<Stream>(nullptr, Device::kCuda);
    }
    void wait() { card::synchronize(stream_->queue()); }

    std::unique_ptr<Stream> stream_;
    Stream cpu_;
};

// A copy on the card of a tensor of the host.
inline Tensor on_card(const Tensor& host) {
    Tensor t(host.dtype(), host.rows(), host.cols(), Device::kCuda);
    if (host.num_bytes() > 0) card::copy_now(t.view().data, host.view().data, host.num_bytes());
    return t;
}
inline Tensor on_host(const Tensor& of_card) {
    Tensor t(of_card.dtype(), of_card.rows(), of_card.cols());
    if (of_card.num_bytes() > 0)
        card::copy_now(t.view().data, of_card.view().data, of_card.num_bytes());
    return t;
}

// An output that nothing has been written to: NaN everywhere.
inline Tensor poisoned(DType type, int64_t rows, int64_t cols) {
    Tensor t(type, rows, cols);
    fill(t.view(), std::nanf(""));
    return t;
}

template <typename T>
class CardArray {
  public:
    explicit CardArray(const std::vector<T>& values)
        : size_(values.size()), memory_(std::max<size_t>(1, size_) * sizeof(T), Device::kCuda) {
        if (size_ > 0) card::copy_now(memory_.data(), values.data(), size_ * sizeof(T));
    }
    T* data() { return memory_.as<T>(); }
    std::vector<T> values() const {
        std::vector<T> values(size_);
        if (size_ > 0) card::copy_now(values.data(), memory_.data(), size_ * sizeof(T));
        return values;
    }

  private:
    size_t size_;
    Buffer memory_;
};

// NaN in the same places of both, and nothing else: what must not be written was not.
inline bool same_nans(ConstView a, ConstView b) {
    for (int64_t i = 0; i < a.rows; ++i)
        for (int64_t j = 0; j < a.cols; ++j)
            if (std::isnan(get(a, i, j)) != std::isnan(get(b, i, j))) return false;
    return true;
}

// A checkpoint tensor in FP8 with its scales.
struct Fp8Tensor {
    int64_t rows, cols;
    std::vector<uint8_t> bytes;
    std::vector<float> scales;

    Fp8Tensor(int64_t num_rows, int64_t num_cols, uint32_t seed) : rows(num_rows), cols(num_cols) {
        std::mt19937 random(seed);
        for (int64_t i = 0; i < rows * cols; ++i) {
            const auto b = static_cast<uint8_t>(random());
            bytes.push_back((b & 0x7f) == 0x7f ? 0 : b);
        }
        std::uniform_real_distribution<float> values(1e-3f, 3e-3f);
        for (int64_t i = 0; i < (rows + 127) / 128 * ((cols + 127) / 128); ++i)
            scales.push_back(values(random));
    }
    LinearSource source() const {
        return LinearSource::whole(bytes.data(), DType::kF8E4M3, rows, cols, scales.data());
    }
};

}  // namespace aerie::kernels::testing
