// TensorFile: one safetensors file. Its header is checked in full when it is opened, whoever wrote
// it: after that every tensor lies inside the file, has the bytes of its shape, and overlaps none.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace aerie::model {

struct TensorInfo {
    std::string name;
    std::string dtype;  // as in the file: "F8_E4M3", "BF16", "F32", "I64", …
    std::vector<int64_t> shape;
    uint64_t begin = 0;  // bytes from the beginning of the file
    uint64_t end = 0;
};

std::string shape_text(const std::vector<int64_t>& shape);  // "[7168, 2048]"

// header: the JSON text; data_begin: where it ends; file_bytes: of the whole file. Errors begin with
// the path and name the tensor.
Result<std::vector<TensorInfo>> parse_header(const std::string& path, std::string_view header,
                                             uint64_t data_begin, uint64_t file_bytes);

class TensorFile {
  public:
    // mapped: bytes are reached through a mapping; otherwise they are read into the caller's memory.
    static Result<std::unique_ptr<TensorFile>> open(const std::string& path, bool mapped);
    ~TensorFile();
    TensorFile(const TensorFile&) = delete;
    TensorFile& operator=(const TensorFile&) = delete;

    const std::string& path() const { return path_; }
    const std::vector<TensorInfo>& tensors() const { return tensors_; }
    // The file's first byte, or null where it is not mapped. Valid as long as this object.
    const std::byte* mapping() const { return mapping_; }

    // Tells the system that [begin, end) will be read soon. Mapped files only.
    void will_need(uint64_t begin, uint64_t end) const;
    // Reads bytes [begin, end) to `into`. Any thread.
    Status read(uint64_t begin, uint64_t end, void* into) const;

  private:
    TensorFile() = default;

    std::string path_;
    int fd_ = -1;
    uint64_t file_bytes_ = 0;
    const std::byte* mapping_ = nullptr;
    std::vector<TensorInfo> tensors_;
};

// Whether files under this path come over a network (NFS, SMB, Lustre, FUSE, …), where parallel
// reads are much faster than page faults.
bool on_network_file_system(const std::string& path);

}  // namespace aerie::model
