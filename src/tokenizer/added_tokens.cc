#include "tokenizer/added_tokens.h"

#include <algorithm>

namespace aerie {
namespace {

// White_Space at the beginning of valid UTF-8: its bytes, or 0.
size_t space_bytes(std::string_view text) {
    static constexpr std::string_view kSpaces[] = {
        "\t", "\n", "\v", "\f", "\r", " ", "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002",
        "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a", "\u2028",
        "\u2029", "\u202f", "\u205f", "\u3000"};
    for (std::string_view space : kSpaces) {
        if (text.starts_with(space)) return space.size();
    }
    return 0;
}

size_t leading_spaces(std::string_view text) {
    size_t bytes = 0;
    while (size_t more = space_bytes(text.substr(bytes))) bytes += more;
    return bytes;
}

size_t trailing_spaces(std::string_view text) {
    size_t bytes = 0;
    while (bytes < text.size()) {
        size_t length = 1;  // of the character that ends here
        while (bytes + length < text.size() && length < 4 &&
               (static_cast<uint8_t>(text[text.size() - bytes - length]) & 0xc0) == 0x80) {
            ++length;
        }
        if (space_bytes(text.substr(text.size() - bytes - length)) != length) break;
        bytes += length;
    }
    return bytes;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
    for (size_t i = 0; i < tokens_.size(); ++i) {
        (tokens_[i].normalized ? normalized_ : plain_)
            .add(tokens_[i].content, static_cast<int32_t>(i));
    }
}

void AddedTokens::Trie::add(std::string_view content, int32_t token_idx) {
    begins[static_cast<uint8_t>(content[0])] = true;
    int32_t node = 0;
    for (char c : content) {
        int32_t next = child(node, static_cast<uint8_t>(c));
        if (next < 0) {
            next = static_cast<int32_t>(nodes.size());
            nodes[node].children.emplace_back(static_cast<uint8_t>(c), next);
            nodes.emplace_back();
        }
        node = next;
    }
    nodes[node].token_idx = token_idx;
}

int32_t AddedTokens::Trie::child(int32_t node, uint8_t byte) const {
    for (const auto& [b, next] : nodes[node].children) {
        if (b == byte) return next;
    }
    return -1;
}

int32_t AddedTokens::Trie::longest(std::string_view text) const {
    int32_t found = -1;
    int32_t node = 0;
    for (char c : text) {
        node = child(node, static_cast<uint8_t>(c));
        if (node < 0) break;
        if (nodes[node].token_idx >= 0) found = nodes[node].token_idx;
    }
    return found;
}

std::vector<AddedTokens::Piece> AddedTokens::split(std::string_view text) const {
    std::vector<Piece> by_plain, pieces;
    split_by(plain_, text, by_plain);
    for (const Piece& piece : by_plain) {
        if (piece.id >= 0) {
            pieces.push_back(piece);
        } else {
            split_by(normalized_, piece.text, pieces);
        }
    }
    return pieces;
}

void AddedTokens::split_by(const Trie& trie, std::string_view text,
                           std::vector<Piece>& pieces) const {
    size_t done = 0;
    for (size_t at = 0; at < text.size();) {
        const int32_t idx =
            trie.begins[static_cast<uint8_t>(text[at])] ? trie.longest(text.substr(at)) : -1;
        if (idx < 0) {
            ++at;
            continue;
        }
        const AddedToken& token = tokens_[idx];
        size_t begin = at;
        size_t end = at + token.content.size();
        at = end;
        if (token.lstrip) begin -= trailing_spaces(text.substr(0, begin));
        if (token.rstrip) end += leading_spaces(text.substr(end));
        begin = std::max(begin, done);  // what the token before has taken stays its own
        if (begin > done) pieces.push_back({text.substr(done, begin - done), -1});
        pieces.push_back({text.substr(begin, end - begin), token.id});
        done = end;
    }
    if (done < text.size()) pieces.push_back({text.substr(done), -1});
}

}  // namespace aerie
