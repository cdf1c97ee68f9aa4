// KvPool: the KV cache memory of one attention rank, or of the ranks of a process that hold the
// same latents (the tp ranks of a replica on a CPU): [num_layers, num_blocks, page_size, width] in
// the compute type, so that a run of blocks of one layer is one contiguous copy, and the whole is one
// region for the fabric. Pages of memory that were never written cost nothing. Who may write a block
// when is the owner's business.
#pragma once

#include <cstdint>

#include "tensor/buffer.h"
#include "tensor/dtype.h"

namespace aerie {

class KvPool {
  public:
    // width: values a token and layer, latent and rope together. The MTP layer is one more layer.
    KvPool(int num_layers, int64_t num_blocks, int page_size, int width, DType dtype)
        : num_layers_(num_layers), num_blocks_(num_blocks), page_size_(page_size), width_(width),
          dtype_(dtype), memory_(num_bytes()) {}

    int num_layers() const { return num_layers_; }
    int64_t num_blocks() const { return num_blocks_; }
    int page_size() const { return page_size_; }  // tokens
    int width() const { return width_; }
    DType dtype() const { return dtype_; }
    size_t block_bytes() const {  // of one layer
        return static_cast<size_t>(page_size_) * static_cast<size_t>(width_) * size_of(dtype_);
    }
    size_t layer_bytes() const { return static_cast<size_t>(num_blocks_) * block_bytes(); }
    size_t num_bytes() const { return static_cast<size_t>(num_layers_) * layer_bytes(); }

    std::byte* layer(int layer) {
        return memory_.as<std::byte>() + static_cast<size_t>(layer) * layer_bytes();
    }
    std::byte* block(int layer, int64_t block) {
        return this->layer(layer) + static_cast<size_t>(block) * block_bytes();
    }

  private:
    int num_layers_;
    int64_t num_blocks_;
    int page_size_;
    int width_;
    DType dtype_;
    Buffer memory_;  // after what its size is made of
};

}  // namespace aerie
