// WeightStore: the packed weights of a host process. Ranks that need the same tensor, or the same
// slice of it, share one copy; each is read and packed once, by whoever asks first.
//
// Owner: the host, which keeps the store longer than its ranks: pointers that get() hands out live
// as long as the store. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "kernels/experts.h"
#include "kernels/linear.h"
#include "model/tensor_source.h"
#include "tensor/tensor.h"

namespace aerie::model {

struct WeightOptions {
    DType compute = DType::kBF16;  // bfloat16 or float32
    // FP8 weights stay FP8 in memory: half the bytes, the same results. Expanded ones are 1.6 times faster at
    // few rows while the last cache holds them (kernels/linear.h).
    bool keep_fp8 = false;
    Device device = Device::kCpu;  // where they are held; on the card compute is bfloat16
};

// A slice of a module's "<module>.weight" [rows, cols]: all of it unless ends are given.
struct WeightSlice {
    std::string module;
    int64_t rows = 0;
    int64_t cols = 0;
    TensorKind kind = TensorKind::kWeight;
    int64_t row_begin = 0;
    int64_t row_end = -1;  // -1: rows
    int64_t col_begin = 0;
    int64_t col_end = -1;  // -1: cols
};

// kv_b_proj [num_heads · (nope + v), latent] holds W_UK [nope, latent] above W_UV [v, latent] for each
// head; the absorbed form multiplies by W_UK's transpose, keys are made of latents by W_UK itself.
struct KvHeads {
    std::vector<kernels::LinearWeight> uk;  // [heads], each [latent, nope]
    std::vector<kernels::LinearWeight> uv;  // [heads], each [v, latent]
    // Where asked for, on a CPU: [heads], each [nope, latent]; on the card all heads as kv_b_proj has
    // them.
    std::vector<kernels::LinearWeight> expand_k;
    kernels::LinearWeight expand_kv;
};
struct KvHeadSlice {
    std::string module;
    int64_t num_heads = 0;  // of the whole tensor
    int64_t head_begin = 0;
    int64_t head_end = 0;
    int64_t nope = 0;
    int64_t v = 0;
    int64_t latent = 0;
    bool expanding = false;
};

class WeightStore {
  public:
    WeightStore(std::unique_ptr<TensorSource> source, const WeightOptions& options)
        : source_(std::move(source)), options_(options) {}

    const WeightOptions& options() const { return options_; }
    std::string description() const { return source_->description(); }

    // The value under `key`, made by `make`, a callable that returns Result<T>, if this is the first
    // call with that key (others wait for it). A failure is kept and given to all. make must neither
    // call get() nor start a parallel loop.
    template <typename T, typename Make>
    Result<const T*> get(const std::string& key, Make&& make);

    // For `make`: reads and packs.
    Result<kernels::LinearWeight> pack(std::span<const WeightSlice> stacked);
    // The same on the card, where the host holds one slice at a time.
    Result<kernels::LinearWeight> pack_one_by_one(std::span<const WeightSlice> stacked);
    Result<Tensor> vector(const std::string& name, int64_t size);  // any type → float32 [1, size]
    Result<Tensor> table(const std::string& name, int64_t rows, int64_t cols);  // compute type
    Result<KvHeads> pack_kv_heads(const KvHeadSlice& slice);

    size_t held_bytes() const;                   // packed weights in memory
    uint64_t read_bytes() const;                 // taken from the source so far
    std::set<std::string> loaded_tensors() const;  // names of the tensors any part of which was read
    // Loading is over: closes the files.
    void close_source();

  private:
    struct Held {
        virtual ~Held() = default;
    };
    template <typename T>
    struct Holder : Held {
        explicit Holder(T v) : value(std::move(v)) {}
        T value;
    };
    struct Slot {
        std::mutex making;
        std::unique_ptr<Held> value;
        std::optional<Error> failure;
    };
    struct Loaded;  // one tensor's bytes and scales

    Slot& slot_of(const std::string& key);
    void count_held(size_t bytes);
    Result<TensorBytes> load(const TensorSpec& spec, int64_t row_begin, int64_t row_end);
    Status load_linear(const WeightSlice& slice, Loaded& into);
    static kernels::LinearSource source_of(const WeightSlice& slice, const Loaded& loaded);
    Tensor on_device(Tensor tensor) const;

    std::unique_ptr<TensorSource> source_;
    WeightOptions options_;
    mutable std::mutex mutex_;  // of what follows
    std::map<std::string, std::unique_ptr<Slot>> slots_;
    size_t held_bytes_ = 0;
    uint64_t read_bytes_ = 0;
    std::set<std::string> loaded_tensors_;
};

inline size_t bytes_of(const kernels::LinearWeight& weight) { return weight.num_bytes(); }
inline size_t bytes_of(const kernels::ExpertWeights& weights) {
    return weights.gate_up.num_bytes() + weights.down.num_bytes();
}
size_t bytes_of(const KvHeads& heads);
inline size_t bytes_of(const Tensor& tensor) { return tensor.num_bytes(); }
inline size_t bytes_of(float) { return sizeof(float); }
template <typename T>
size_t bytes_of(const std::vector<T>& values) {
    size_t sum = 0;
    for (const T& value : values) sum += bytes_of(value);
    return sum;
}

template <typename T, typename Make>
Result<const T*> WeightStore::get(const std::string& key, Make&& make) {
    Slot& slot = slot_of(key);
    std::lock_guard lock(slot.making);
    if (!slot.value && !slot.failure) {
        Result<T> made = make();
        if (made) {
            count_held(bytes_of(*made));
            slot.value = std::make_unique<Holder<T>>(*std::move(made));
        } else {
            slot.failure = made.error();
        }
    }
    if (slot.failure) return *slot.failure;
    return &static_cast<Holder<T>&>(*slot.value).value;
}

}  // namespace aerie::model
