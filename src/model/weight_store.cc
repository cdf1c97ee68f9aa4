#include "model/weight_store.h"

#include <cstring>

#include "kernels/linear_parts.h"
#include "tensor/card.h"

namespace aerie::model {
namespace {

constexpr int64_t kBlock = 128;  // rows and columns that share a scale

int64_t blocks(int64_t n) { return (n + kBlock - 1) / kBlock; }

void convert(const TensorBytes& from, int64_t count, float* to) {
    if (from.dtype == DType::kF32) {
        std::memcpy(to, from.data, static_cast<size_t>(count) * sizeof(float));
        return;
    }
    const auto* bits = static_cast<const BF16*>(from.data);
    for (int64_t i = 0; i < count; ++i) to[i] = f32_from_bf16(bits[i]);
}

void convert(const TensorBytes& from, int64_t count, BF16* to) {
    if (from.dtype == DType::kBF16) {
        std::memcpy(to, from.data, static_cast<size_t>(count) * sizeof(BF16));
        return;
    }
    const auto* values = static_cast<const float*>(from.data);
    for (int64_t i = 0; i < count; ++i) to[i] = bf16_from_f32(values[i]);
}

}  // namespace

struct WeightStore::Loaded {
    TensorBytes bytes;
    TensorBytes scales;  // data null: none
};

WeightStore::Slot& WeightStore::slot_of(const std::string& key) {
    std::lock_guard lock(mutex_);
    auto& slot = slots_[key];
    if (!slot) slot = std::make_unique<Slot>();
    return *slot;
}

void WeightStore::count_held(size_t bytes) {
    std::lock_guard lock(mutex_);
    held_bytes_ += bytes;
}

Result<TensorBytes> WeightStore::load(const TensorSpec& spec, int64_t row_begin, int64_t row_end) {
    CHECK(source_ != nullptr, "{} is asked for after close_source()", spec.name);
    auto bytes = source_->load(spec, row_begin, row_end);
    if (!bytes) return bytes;
    std::lock_guard lock(mutex_);
    loaded_tensors_.insert(spec.name);
    read_bytes_ +=
        static_cast<uint64_t>((row_end - row_begin) * spec.row_elements()) * size_of(bytes->dtype);
    return bytes;
}

// The rows of the slice, and the scales of their blocks where the tensor is FP8.
Status WeightStore::load_linear(const WeightSlice& slice, Loaded& into) {
    const TensorSpec spec{slice.module + ".weight", slice.kind, slice.rows, slice.cols};
    const int64_t row_end = slice.row_end < 0 ? slice.rows : slice.row_end;
    auto bytes = load(spec, slice.row_begin, row_end);
    if (!bytes) return bytes.error();
    into.bytes = *std::move(bytes);
    if (into.bytes.dtype != DType::kF8E4M3) return {};
    const TensorSpec scale_spec{slice.module + ".weight_scale_inv", TensorKind::kScale,
                                blocks(slice.rows), blocks(slice.cols)};
    auto scales = load(scale_spec, slice.row_begin / kBlock, blocks(row_end));
    if (!scales) return scales.error();
    into.scales = *std::move(scales);
    return {};
}

kernels::LinearSource WeightStore::source_of(const WeightSlice& slice, const Loaded& loaded) {
    return {.data = loaded.bytes.data,
            .dtype = loaded.bytes.dtype,
            .rows = slice.rows,
            .cols = slice.cols,
            .scales = static_cast<const float*>(loaded.scales.data),
            .row_begin = slice.row_begin,
            .row_end = slice.row_end < 0 ? slice.rows : slice.row_end,
            .col_begin = slice.col_begin,
            .col_end = slice.col_end < 0 ? slice.cols : slice.col_end};
}

Result<kernels::LinearWeight> WeightStore::pack(std::span<const WeightSlice> stacked) {
    std::vector<Loaded> loaded(stacked.size());
    std::vector<kernels::LinearSource> sources;
    for (size_t i = 0; i < stacked.size(); ++i) {
        RETURN_IF_ERROR(load_linear(stacked[i], loaded[i]));
        sources.push_back(source_of(stacked[i], loaded[i]));
    }
    return kernels::pack_linear(sources, options_.compute, options_.keep_fp8, options_.device);
}

Result<kernels::LinearWeight> WeightStore::pack_one_by_one(std::span<const WeightSlice> stacked) {
    int64_t n = 0;
    for (const WeightSlice& slice : stacked) n += source_of(slice, {}).n();
    Loaded loaded;
    auto weight = kernels::pack_linear_parts(n, stacked.size(), options_.keep_fp8,
                                             [&](size_t i) -> Result<kernels::LinearSource> {
                                                 loaded = {};
                                                 RETURN_IF_ERROR(load_linear(stacked[i], loaded));
                                                 return source_of(stacked[i], loaded);
                                             });
    if (!weight) return error("{} and those behind it: {}", stacked[0].module, weight.message());
    return weight;
}

Result<KvHeads> WeightStore::pack_kv_heads(const KvHeadSlice& slice) {
    const int64_t head_rows = slice.nope + slice.v;
    const int64_t rows = slice.num_heads * head_rows;
    Loaded loaded;
    RETURN_IF_ERROR(load_linear({.module = slice.module,
                                 .rows = rows,
                                 .cols = slice.latent,
                                 .row_begin = slice.head_begin * head_rows,
                                 .row_end = slice.head_end * head_rows},
                                loaded));
    auto source =
        kernels::LinearSource::whole(loaded.bytes.data, loaded.bytes.dtype, rows, slice.latent,
                                     static_cast<const float*>(loaded.scales.data));
    const auto pack = [&] {
        return kernels::pack_linear(source, options_.compute, options_.keep_fp8, options_.device);
    };
    KvHeads heads;
    for (int64_t head = slice.head_begin; head < slice.head_end; ++head) {
        source.row_begin = head * head_rows;
        source.row_end = source.row_begin + slice.nope;
        if (slice.expanding && options_.device == Device::kCpu) heads.expand_k.push_back(pack());
        source.transpose = true;
        heads.uk.push_back(pack());
        source.row_begin = source.row_end;
        source.row_end = (head + 1) * head_rows;
        source.transpose = false;
        heads.uv.push_back(pack());
    }
    if (slice.expanding && options_.device == Device::kCuda) {
        source.row_begin = slice.head_begin * head_rows;
        source.row_end = slice.head_end * head_rows;
        heads.expand_kv = pack();
    }
    return heads;
}

size_t bytes_of(const KvHeads& heads) {
    return bytes_of(heads.uk) + bytes_of(heads.uv) + bytes_of(heads.expand_k) +
           bytes_of(heads.expand_kv);
}

Tensor WeightStore::on_device(Tensor tensor) const {
    if (options_.device == Device::kCpu) return tensor;
    Tensor there(tensor.dtype(), tensor.rows(), tensor.cols(), options_.device);
    card::copy_now(there.data<std::byte>(), tensor.data<std::byte>(), tensor.num_bytes());
    return there;
}

Result<Tensor> WeightStore::vector(const std::string& name, int64_t size) {
    auto bytes = load({.name = name, .rows = size}, 0, size);
    if (!bytes) return bytes.error();
    Tensor values(DType::kF32, 1, size);
    convert(*bytes, size, values.data<float>());
    return on_device(std::move(values));
}

Result<Tensor> WeightStore::table(const std::string& name, int64_t rows, int64_t cols) {
    auto bytes = load({.name = name, .rows = rows, .cols = cols}, 0, rows);
    if (!bytes) return bytes.error();
    Tensor tensor(options_.compute, rows, cols);
    if (options_.compute == DType::kF32) {
        convert(*bytes, rows * cols, tensor.data<float>());
    } else {
        convert(*bytes, rows * cols, tensor.data<BF16>());
    }
    return on_device(std::move(tensor));
}

size_t WeightStore::held_bytes() const {
    std::lock_guard lock(mutex_);
    return held_bytes_;
}

uint64_t WeightStore::read_bytes() const {
    std::lock_guard lock(mutex_);
    return read_bytes_;
}

std::set<std::string> WeightStore::loaded_tensors() const {
    std::lock_guard lock(mutex_);
    return loaded_tensors_;
}

void WeightStore::close_source() { source_.reset(); }

}  // namespace aerie::model
