// Finds added tokens in text: from the left, the longest first, those that are not `normalized`
// before the others.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer_file.h"

namespace aerie {

class AddedTokens {
  public:
    AddedTokens() = default;
    explicit AddedTokens(std::vector<AddedToken> tokens);

    struct Piece {
        std::string_view text;
        int32_t id;  // of the added token, or -1: ordinary text, never empty
    };
    std::vector<Piece> split(std::string_view text) const;

  private:
    // A trie over bytes.
    struct Node {
        std::vector<std::pair<uint8_t, int32_t>> children;  // byte, node
        int32_t token_idx = -1;                             // of the token that ends here
    };
    struct Trie {
        std::vector<Node> nodes{1};
        std::array<bool, 256> begins{};  // bytes that a token begins with
        void add(std::string_view content, int32_t token_idx);
        int32_t child(int32_t node, uint8_t byte) const;  // -1: none
        // The longest token at the text's beginning, or -1.
        int32_t longest(std::string_view text) const;
    };
    void split_by(const Trie& trie, std::string_view text, std::vector<Piece>& pieces) const;

    std::vector<AddedToken> tokens_;
    Trie plain_, normalized_;
};

}  // namespace aerie
