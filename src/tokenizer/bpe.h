// Byte-pair encoding of one word: the pair of neighbours with the best merge is joined, the
// leftmost of equals first, until no merge applies. O(n log n) in the word's bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer_file.h"

namespace aerie {

class Bpe {
  public:
    static Result<Bpe> make(const TokenizerFile& file);

    // What one thread needs while it encodes; kept to save allocations, holds no results.
    struct Scratch {
        struct Symbol {
            int32_t id;
            uint32_t previous, next;  // kNone at the ends; id is kMerged where this one is gone
        };
        std::vector<Symbol> symbols;
        std::vector<uint64_t> heap;  // rank << 32 | index of the left symbol
    };

    // Appends the word's ids. The word has fewer than 2^32 - 1 bytes.
    void encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

    std::optional<int32_t> find(std::string_view bytes) const;

  private:
    struct Merge {
        uint64_t pair = kNoPair;  // left id << 32 | right id
        uint32_t rank = 0;        // lower is better
        int32_t id = -1;          // of the token that the two become
    };
    static constexpr uint64_t kNoPair = UINT64_MAX;
    static constexpr uint32_t kNoRank = UINT32_MAX;

    const Merge* find_merge(int32_t left, int32_t right) const;
    void encode_short(std::string_view word, std::vector<int32_t>& ids) const;
    void encode_long(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;
    Status add_merges(const TokenizerFile& file);

    struct BytesHash {
        using is_transparent = void;
        size_t operator()(std::string_view bytes) const;
    };
    std::unordered_map<std::string, int32_t, BytesHash, std::equal_to<>> ids_;  // bytes -> id
    std::array<int32_t, 256> byte_ids_{};
    std::vector<Merge> merges_;  // open addressing, a power of two, at most half full
    bool ignore_merges_ = false;
};

}  // namespace aerie
