#include "tokenizer/byte_level.h"

#include <array>
#include <cstdint>
#include <optional>

namespace aerie {
namespace {

// Bytes that are printable in Latin-1 are themselves; the other 68 are U+0100 and up, in order.
constexpr bool is_itself(int byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

constexpr int kNumCharacters = 0x100 + 68;

constexpr std::array<int16_t, kNumCharacters> kByteOfCharacter = [] {
    std::array<int16_t, kNumCharacters> table{};
    table.fill(-1);
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) table[is_itself(byte) ? byte : next++] = byte;
    return table;
}();

std::optional<std::string> decode(std::string_view token) {
    std::string bytes;
    bytes.reserve(token.size());
    for (size_t i = 0; i < token.size();) {
        const auto lead = static_cast<uint8_t>(token[i]);
        int character = lead;
        size_t length = 1;
        if (lead >= 0xc0) {  // the alphabet ends below U+0800: two bytes at most
            if (lead >= 0xe0 || i + 1 >= token.size()) return std::nullopt;
            character = (lead & 0x1f) << 6 | (static_cast<uint8_t>(token[i + 1]) & 0x3f);
            length = 2;
        } else if (lead >= 0x80) {
            return std::nullopt;
        }
        if (character >= kNumCharacters || kByteOfCharacter[character] < 0) return std::nullopt;
        bytes.push_back(static_cast<char>(kByteOfCharacter[character]));
        i += length;
    }
    return bytes;
}

}  // namespace

std::string byte_level_bytes(std::string_view token) {
    auto bytes = decode(token);
    return bytes ? *std::move(bytes) : std::string(token);
}

bool is_byte_level(std::string_view token) { return decode(token).has_value(); }

}  // namespace aerie
