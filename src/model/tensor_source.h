// TensorSource: where a model's tensors come from: a checkpoint, or seeded random numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "tensor/buffer.h"
#include "tensor/dtype.h"

namespace aerie::model {

// What types a tensor may have.
enum class TensorKind {
    kWeight,  // float8_e4m3 with a scale tensor beside it, bfloat16 or float32
    kPlain,   // never quantised: bfloat16 or float32
    kScale,   // float32
};

struct TensorSpec {
    std::string name;  // as in model.md: without the prefix that some checkpoints put before it
    TensorKind kind = TensorKind::kPlain;
    int64_t rows = 0;
    int64_t cols = 0;  // 0: the tensor is a vector [rows]

    int64_t row_elements() const { return cols == 0 ? 1 : cols; }
};

// A tensor of which only some rows may be read.
struct TensorBytes {
    const void* data = nullptr;  // row 0 of the whole tensor, aligned to its type
    DType dtype = DType::kBF16;
    Buffer owned;  // the memory, where it is not the source's; else data lives as long as the source
};

class TensorSource {
  public:
    virtual ~TensorSource() = default;

    // The rows [row_begin, row_end); no other bytes are touched. The error names file and tensor.
    // Any thread.
    virtual Result<TensorBytes> load(const TensorSpec& spec, int64_t row_begin, int64_t row_end) = 0;
    // Whether a tensor of this name exists. Any thread.
    virtual bool has(const std::string& name) const = 0;
    virtual std::string description() const = 0;  // for the log
};

enum class ReadMode {
    kAuto,  // kRead on network file systems, else kMap
    kMap,
    kRead,
};

// <folder>/model.safetensors.index.json and the files it names, or <folder>/model.safetensors. Opens
// every file and checks every header.
Result<std::unique_ptr<TensorSource>> open_checkpoint(const std::string& folder, ReadMode mode);

// An error where the tensors' names tell of another number of layers than config.json's
// num_hidden_layers: the layer behind the last would be taken for one of them, or be left out.
Status check_num_layers(const TensorSource& checkpoint, int num_hidden_layers);

// load_format "dummy": values that depend on seed, tensor and place only, so that every slicing sees
// the same model. Variances are such that activations stay near 1. Weights are FP8 where `quantised`.
std::unique_ptr<TensorSource> make_dummy_source(uint64_t seed, bool quantised);

}  // namespace aerie::model
