// The bytes of KV messages, described once for both sides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace aerie::transfer {

// Where one context-parallel rank's KV lives: per layer [num_blocks, page_size, token]. Owned by the
// engine, which outlives the transfer.
struct Pool {
    std::vector<std::byte*> layers;  // [layers], each num_blocks · block_bytes long
    int num_blocks = 0;
    int page_size = 0;       // tokens
    size_t token_bytes = 0;  // of one layer
    size_t block_bytes() const { return page_size * token_bytes; }
};

enum class MessageKind : uint32_t { kControl = 1, kPush = 2 };

// Header of both kinds. kControl: the payload is a proto::KvMessage. kPush: the payload is the KV of
// num_tokens tokens of one layer, from the first slot of the sequence's block first_block on. The
// receiver alone knows which blocks of its pools these are.
struct KvHeader {
    MessageKind kind;
    int32_t replica;   // the sender's, among its role's
    uint64_t id;
    uint64_t serial;   // kControl: tells the sender's messages apart
    uint32_t attempt;
    int32_t layer;
    int32_t first_block;
    int32_t num_tokens;
};

}  // namespace aerie::transfer
