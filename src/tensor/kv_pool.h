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

struct KvPoolShape {
    int num_layers = 0;  // the MTP layer is one more
    int64_t num_blocks = 0;
    int page_size = 0;  // tokens
    int width = 0;      // values a token and layer, latent and rope together
    DType dtype = DType::kF32;

    size_t token_bytes() const { return static_cast<size_t>(width) * size_of(dtype); }
    size_t block_bytes() const { return static_cast<size_t>(page_size) * token_bytes(); }
    size_t layer_bytes() const { return static_cast<size_t>(num_blocks) * block_bytes(); }
    size_t num_bytes() const { return static_cast<size_t>(num_layers) * layer_bytes(); }
};

class KvPool {
  public:
    explicit KvPool(const KvPoolShape& shape, Device device = Device::kCpu)
        : shape_(shape), own_(shape.num_bytes(), device), base_(own_.as<std::byte>()) {}
    // In memory that peers may reach: num_bytes() of it, zero. It outlives the pool.
    KvPool(const KvPoolShape& shape, std::byte* memory) : shape_(shape), base_(memory) {}
    KvPool(const KvPool&) = delete;
    KvPool& operator=(const KvPool&) = delete;

    int num_layers() const { return shape_.num_layers; }
    int64_t num_blocks() const { return shape_.num_blocks; }
    int page_size() const { return shape_.page_size; }  // tokens
    int width() const { return shape_.width; }
    DType dtype() const { return shape_.dtype; }
    size_t block_bytes() const { return shape_.block_bytes(); }  // of one layer
    size_t layer_bytes() const { return shape_.layer_bytes(); }
    size_t num_bytes() const { return shape_.num_bytes(); }

    std::byte* layer(int layer) { return base_ + static_cast<size_t>(layer) * layer_bytes(); }
    std::byte* block(int layer, int64_t block) {
        return this->layer(layer) + static_cast<size_t>(block) * block_bytes();
    }

  private:
    const KvPoolShape shape_;
    Buffer own_;  // empty where the memory is another's
    std::byte* const base_;
};

}  // namespace aerie
