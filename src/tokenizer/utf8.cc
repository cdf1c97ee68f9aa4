#include "tokenizer/utf8.h"

#include <cstdint>
#include <cstring>

namespace aerie {
namespace {

struct Unit {
    size_t num_bytes;  // of the character, or of the maximal invalid part
    bool valid;
    bool truncated;  // invalid only because the text ends
};

// Looks at the character that begins at `at`. Table 3-7 of the Unicode standard.
Unit unit_at(std::string_view bytes, size_t at) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
    const uint8_t lead = byte(at);
    if (lead < 0x80) return {1, true, false};
    size_t length = 0;
    uint8_t low = 0x80, high = 0xbf;
    if (lead >= 0xc2 && lead <= 0xdf) {
        length = 2;
    } else if (lead >= 0xe0 && lead <= 0xef) {
        length = 3;
        if (lead == 0xe0) low = 0xa0;
        if (lead == 0xed) high = 0x9f;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        length = 4;
        if (lead == 0xf0) low = 0x90;
        if (lead == 0xf4) high = 0x8f;
    } else {
        return {1, false, false};
    }
    for (size_t i = 1; i < length; ++i) {
        if (at + i >= bytes.size()) return {i, false, true};
        if (byte(at + i) < low || byte(at + i) > high) return {i, false, false};
        low = 0x80;
        high = 0xbf;
    }
    return {length, true, false};
}

}  // namespace

size_t valid_utf8_prefix(std::string_view bytes) {
    size_t at = 0;
    while (at < bytes.size()) {
        uint64_t eight;
        if (at + 8 <= bytes.size() &&
            (std::memcpy(&eight, bytes.data() + at, 8), (eight & 0x8080808080808080u) == 0)) {
            at += 8;
            continue;
        }
        const Unit unit = unit_at(bytes, at);
        if (!unit.valid) break;
        at += unit.num_bytes;
    }
    return at;
}

size_t incomplete_utf8_suffix(std::string_view bytes) {
    for (size_t back = 1; back <= 3 && back <= bytes.size(); ++back) {
        const auto byte = static_cast<uint8_t>(bytes[bytes.size() - back]);
        if ((byte & 0xc0) == 0x80) continue;  // a continuation: its lead byte stands before it
        const Unit unit = unit_at(bytes, bytes.size() - back);
        return unit.truncated && unit.num_bytes == back ? back : 0;
    }
    return 0;
}

void append_repaired_utf8(std::string& out, std::string_view bytes) {
    while (!bytes.empty()) {
        const size_t valid = valid_utf8_prefix(bytes);
        out.append(bytes.substr(0, valid));
        if (valid == bytes.size()) return;
        out.append(kReplacementCharacter);
        bytes.remove_prefix(valid + unit_at(bytes, valid).num_bytes);
    }
}

}  // namespace aerie
