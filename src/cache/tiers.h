// Where the KV of a page can be, from the fastest to the largest: a block of the KV pool, a slot of
// host memory, a slot of a file. The prefix cache moves numbers; who owns the memory copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace aerie::cache {

enum class Tier : uint8_t { kDevice, kHost, kFile };

// A page's KV goes from one tier to another, on one cp rank: up into a block, or down.
struct KvCopy {
    int cp_rank = 0;
    Tier from = Tier::kDevice;
    Tier to = Tier::kDevice;
    int32_t source = 0;  // block or slot
    int32_t target = 0;
    bool operator==(const KvCopy&) const = default;
};

struct CopiesMade {
    size_t num_good = 0;     // before the first that has left no KV: one out of the file
    bool file_works = true;  // false: from now on none of its slots can be read or written
};
// Makes all copies, in their order.
using MakeCopies = std::function<CopiesMade(std::span<const KvCopy>)>;

// What stands behind the blocks of each cp rank; slots hold a page each.
struct LowerTiers {
    int num_host_slots = 0;
    int num_file_slots = 0;
    MakeCopies make_copies{};  // needed with file slots
};

}  // namespace aerie::cache
