// KvFile: pages of KV pools in a file, a slot each, [slots, num_layers, block_bytes]. The file has no
// name once it is made, so nothing of it outlives the process. A page comes back as it was written
// or not at all: checksums stay in memory. After an error of the disk the file is off: nothing is
// written, nothing comes back. One thread, but for works().
//
// Calls block, in the step path, until the kernel has copied the bytes; it writes them to the disk
// when it likes. That is some ms for a page of 64 tokens of DeepSeek-V3 (docs/measured.md), little
// beside computing them on a CPU.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/kv_pool.h"

namespace aerie {

class KvFile {
  public:
    // In `folder`, for as many pages as a pool of this shape has blocks. The bytes are reserved where
    // the file system can do that. The error says how many were wanted where, and what failed.
    static Result<std::unique_ptr<KvFile>> create(const std::string& folder,
                                                  const KvPoolShape& shape);
    // Of an open file, which it closes. name: for the log.
    KvFile(int fd, std::string name, int64_t num_slots, size_t page_bytes);
    ~KvFile();
    KvFile(const KvFile&) = delete;
    KvFile& operator=(const KvFile&) = delete;

    // From a block of a pool of the shape.
    void write(int64_t slot, KvPool& pool, int64_t block);
    // Into a block. False: the page is lost, and the block holds anything.
    bool read(int64_t slot, KvPool& pool, int64_t block);
    bool works() const { return works_.load(std::memory_order_relaxed); }

  private:
    int64_t offset(int64_t slot) const { return slot * static_cast<int64_t>(page_bytes_); }
    void turn_off(const char* what, int error_number);
    void flip_byte(int64_t slot);

    const int fd_;
    const std::string name_;
    const size_t page_bytes_;
    std::vector<uint64_t> checksums_;  // [slots], 0: holds no page
    uint64_t num_damaged_ = 0;
    std::atomic<bool> works_{true};
};

}  // namespace aerie
