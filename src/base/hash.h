// A 64-bit hash of bytes, for test hooks and fingerprints; not for secrets. The same on every
// machine of one byte order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace aerie {

// splitmix64's finaliser: every input bit reaches every output bit.
constexpr uint64_t mix64(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

inline uint64_t hash_bytes(const void* data, size_t num_bytes, uint64_t seed = 0) {
    const auto* p = static_cast<const unsigned char*>(data);
    uint64_t h = mix64(seed ^ (0x9e3779b97f4a7c15u * (num_bytes + 1)));
    for (; num_bytes >= 8; num_bytes -= 8, p += 8) {
        uint64_t word;
        std::memcpy(&word, p, 8);
        h = mix64(h ^ word) + 0x9e3779b97f4a7c15u;
    }
    uint64_t tail = 0;
    if (num_bytes > 0) std::memcpy(&tail, p, num_bytes);  // of nothing, data may be null
    return mix64(h ^ tail);
}

}  // namespace aerie
