#include "tensor/kv_file.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/fault.h"
#include "base/hash.h"
#include "base/log.h"

namespace aerie {
namespace {

// A checksum at the speed of memory: four lanes, each of which no change of a single word leaves as
// it was. Blocks are whole words but for an odd page size in bfloat16, whose last bytes go by hash.
struct Checksum {
    uint64_t lanes[4] = {1, 2, 3, 4};

    void add(const std::byte* data, size_t num_bytes) {
        constexpr uint64_t kFactor = 0x9e3779b97f4a7c15u;
        const size_t num_whole = num_bytes / sizeof(lanes) * sizeof(lanes);
        for (size_t i = 0; i < num_whole; i += sizeof(lanes)) {
            uint64_t words[4];
            std::memcpy(words, data + i, sizeof(words));
            for (int lane = 0; lane < 4; ++lane)
                lanes[lane] = std::rotl((lanes[lane] ^ words[lane]) * kFactor, 29);
        }
        lanes[0] ^= hash_bytes(data + num_whole, num_bytes - num_whole);
    }
    uint64_t value() const { return std::max<uint64_t>(hash_bytes(lanes, sizeof(lanes)), 1); }
};

uint64_t checksum(KvPool& pool, int64_t block) {
    Checksum sum;
    for (int layer = 0; layer < pool.num_layers(); ++layer)
        sum.add(pool.block(layer, block), pool.block_bytes());
    return sum.value();
}

// Moves a block's bytes of all layers with preadv or pwritev; 0 or the error's number.
template <typename Call>
int move_page(Call call, int fd, int64_t offset, KvPool& pool, int64_t block) {
    std::vector<iovec> pieces(pool.num_layers());
    for (int layer = 0; layer < pool.num_layers(); ++layer)
        pieces[layer] = {pool.block(layer, block), pool.block_bytes()};
    std::span<iovec> left(pieces);
    while (!left.empty()) {
        const auto count = static_cast<int>(std::min<size_t>(left.size(), IOV_MAX));
        const ssize_t num_bytes = call(fd, left.data(), count, offset);
        if (num_bytes < 0 && errno == EINTR) continue;
        if (num_bytes <= 0) return num_bytes < 0 ? errno : EIO;
        offset += num_bytes;
        for (auto moved = static_cast<size_t>(num_bytes); moved > 0;) {
            iovec& first = left.front();
            const size_t part = std::min(moved, first.iov_len);
            first.iov_base = static_cast<std::byte*>(first.iov_base) + part;
            first.iov_len -= part;
            moved -= part;
            if (first.iov_len == 0) left = left.subspan(1);
        }
    }
    return 0;
}

}  // namespace

Result<std::unique_ptr<KvFile>> KvFile::create(const std::string& folder,
                                               const KvPoolShape& shape) {
    const auto num_bytes = static_cast<int64_t>(shape.num_bytes());
    std::string path = folder + "/aerie-kv-XXXXXX";
    const int fd = mkostemp(path.data(), O_CLOEXEC);
    if (fd < 0) return error("no file can be made in {}: {}", folder, std::strerror(errno));
    unlink(path.c_str());
    if (fallocate(fd, 0, 0, num_bytes) != 0 &&
        (errno != EOPNOTSUPP || ftruncate(fd, num_bytes) != 0)) {
        const Error failed =
            error("{} cannot have {} bytes: {}", path, num_bytes, std::strerror(errno));
        close(fd);
        return failed;
    }
    return std::make_unique<KvFile>(fd, path, shape.num_blocks,
                                    shape.block_bytes() * shape.num_layers);
}

KvFile::KvFile(int fd, std::string name, int64_t num_slots, size_t page_bytes)
    : fd_(fd), name_(std::move(name)), page_bytes_(page_bytes), checksums_(num_slots, 0) {}

KvFile::~KvFile() { close(fd_); }

void KvFile::write(int64_t slot, KvPool& pool, int64_t block) {
    checksums_[slot] = 0;
    if (!works()) return;
    const bool full = fault_planted(Fault::kFileFull);
    if (const int failed = full ? ENOSPC : move_page(pwritev, fd_, offset(slot), pool, block))
        return turn_off("write", failed);
    checksums_[slot] = checksum(pool, block);
    if (fault_planted(Fault::kFilePageDamaged) || fault_planted(Fault::kFilePageUnchecked))
        [[unlikely]]
        flip_byte(slot);
}

bool KvFile::read(int64_t slot, KvPool& pool, int64_t block) {
    if (!works() || checksums_[slot] == 0) return false;
    if (const int failed = move_page(preadv, fd_, offset(slot), pool, block)) {
        turn_off("read", failed);
        return false;
    }
    if (checksum(pool, block) == checksums_[slot] || fault_planted(Fault::kFilePageUnchecked))
        return true;
    checksums_[slot] = 0;
    if (std::has_single_bit(++num_damaged_))
        log_warning("{}: a page of KV has come back damaged, the {}. so far; it is computed again",
                    name_, num_damaged_);
    return false;
}

void KvFile::turn_off(const char* what, int error_number) {
    works_ = false;
    log_error("{}: a page of KV was not to {}: {}; from now on evicted KV is not kept on disk",
              name_, what, std::strerror(error_number));
}

// For the planted faults, in every eighth slot: a bit that matters, of the first layer.
void KvFile::flip_byte(int64_t slot) {
    char byte = 0;
    if (slot % 8 != 0) return;
    CHECK_EQ(pread(fd_, &byte, 1, offset(slot) + 1), 1);
    byte ^= 0x10;
    CHECK_EQ(pwrite(fd_, &byte, 1, offset(slot) + 1), 1);
}

}  // namespace aerie
