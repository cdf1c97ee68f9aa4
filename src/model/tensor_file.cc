#include "model/tensor_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/json.h"

namespace aerie::model {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

// Bits of one element, or 0 for a type that is not known here: its size cannot be checked.
int bits_of(std::string_view dtype) {
    struct Row {
        const char* name;
        int bits;
    };
    static constexpr Row kRows[] = {
        {"BOOL", 8}, {"U8", 8},   {"I8", 8},   {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8},
        {"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16},   {"I32", 32},    {"U32", 32},
        {"F32", 32}, {"I64", 64}, {"U64", 64}, {"F64", 64},
    };
    for (const Row& row : kRows) {
        if (dtype == row.name) return row.bits;
    }
    return 0;
}

// Bytes of a tensor, or nothing where they exceed 64 bits.
std::optional<uint64_t> bytes_of(const std::vector<int64_t>& shape, int bits) {
    uint64_t bytes = static_cast<uint64_t>(bits) / 8;
    for (int64_t extent : shape) {
        if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) return {};
    }
    return bytes;
}

Result<std::vector<int64_t>> whole_numbers(const Json& value, const char* field) {
    if (!value.is_array()) return error("{} is {}, expected an array", field, value.type_name());
    std::vector<int64_t> numbers;
    for (const Json& item : value.as_array()) {
        if (!item.is_int() || item.as_int() < 0)
            return error("{} holds {}, expected whole numbers from 0", field, item.dump());
        numbers.push_back(item.as_int());
    }
    return numbers;
}

Result<TensorInfo> parse_tensor(const std::string& name, const Json& entry, uint64_t data_begin,
                                uint64_t file_bytes) {
    if (!entry.is_object()) return error("is {}, expected an object", entry.type_name());
    if (!entry["dtype"].is_string())
        return error("dtype is {}, expected a string", entry["dtype"].type_name());
    auto shape = whole_numbers(entry["shape"], "shape");
    if (!shape) return shape.error();
    auto offsets = whole_numbers(entry["data_offsets"], "data_offsets");
    if (!offsets) return offsets.error();

    const std::string& dtype = entry["dtype"].as_string();
    if (offsets->size() != 2)
        return error("data_offsets has {} numbers, expected 2", offsets->size());
    const auto begin = static_cast<uint64_t>((*offsets)[0]);
    const auto end = static_cast<uint64_t>((*offsets)[1]);
    if (begin > end) return error("data_offsets [{}, {}] run backwards", begin, end);
    if (end > file_bytes - data_begin) {
        return error("ends at byte {} of the data, but the file has only {}: it is truncated", end,
                     file_bytes - data_begin);
    }
    if (const int bits = bits_of(dtype); bits != 0) {
        const auto bytes = bytes_of(*shape, bits);
        if (!bytes || *bytes != end - begin) {
            return error("has {} bytes, but {} {} needs {}", end - begin, dtype, shape_text(*shape),
                         bytes ? std::to_string(*bytes) : "more than 2^64");
        }
    }
    return TensorInfo{name, dtype, *std::move(shape), data_begin + begin, data_begin + end};
}

Status check_overlaps(const std::vector<TensorInfo>& tensors) {
    std::vector<const TensorInfo*> order;
    for (const TensorInfo& tensor : tensors) {
        if (tensor.begin < tensor.end) order.push_back(&tensor);
    }
    std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->begin < b->begin; });
    for (size_t i = 1; i < order.size(); ++i) {
        if (order[i]->begin < order[i - 1]->end)
            return error("tensor {} overlaps tensor {}", order[i]->name, order[i - 1]->name);
    }
    return {};
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
    std::string text = "[";
    for (size_t i = 0; i < shape.size(); ++i)
        text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
    return text + "]";
}

Result<std::vector<TensorInfo>> parse_header(const std::string& path, std::string_view header,
                                             uint64_t data_begin, uint64_t file_bytes) {
    auto json = Json::parse(header, 8, Json::RepeatedKey::kError);
    if (!json) return error("{}: header: {}", path, json.message());
    if (!json->is_object())
        return error("{}: header is {}, expected an object", path, json->type_name());
    std::vector<TensorInfo> tensors;
    tensors.reserve(json->as_object().size());
    for (const auto& [name, entry] : json->as_object()) {
        if (name == "__metadata__") continue;
        auto tensor = parse_tensor(name, entry, data_begin, file_bytes);
        if (!tensor) return error("{}: tensor {}: {}", path, name, tensor.message());
        tensors.push_back(*std::move(tensor));
    }
    if (Status status = check_overlaps(tensors); !status)
        return error("{}: {}", path, status.message());
    return tensors;
}

Result<std::unique_ptr<TensorFile>> TensorFile::open(const std::string& path, bool mapped) {
    std::unique_ptr<TensorFile> file(new TensorFile);
    file->path_ = path;
    file->fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file->fd_ < 0) return error("{}: cannot open: {}", path, std::strerror(errno));
    struct stat info {};
    if (fstat(file->fd_, &info) != 0) return error("{}: {}", path, std::strerror(errno));
    if (!S_ISREG(info.st_mode)) return error("{}: is not a file", path);
    file->file_bytes_ = static_cast<uint64_t>(info.st_size);

    uint64_t header_bytes = 0;
    if (file->file_bytes_ < sizeof header_bytes)
        return error("{}: has {} bytes: no safetensors file is so short", path, file->file_bytes_);
    RETURN_IF_ERROR(file->read(0, sizeof header_bytes, &header_bytes));  // little-endian, as x86
    if (header_bytes > kMaxHeaderBytes) {
        return error("{}: header length is {}, expected at most {}: not a safetensors file", path,
                     header_bytes, kMaxHeaderBytes);
    }
    const uint64_t data_begin = sizeof header_bytes + header_bytes;
    if (data_begin > file->file_bytes_) {
        return error("{}: header of {} bytes, but the file has only {}: it is truncated", path,
                     header_bytes, file->file_bytes_);
    }
    std::string header(header_bytes, '\0');
    RETURN_IF_ERROR(file->read(sizeof header_bytes, data_begin, header.data()));
    auto tensors = parse_header(path, header, data_begin, file->file_bytes_);
    if (!tensors) return tensors.error();
    file->tensors_ = *std::move(tensors);

    if (mapped) {
        void* address = mmap(nullptr, file->file_bytes_, PROT_READ, MAP_PRIVATE, file->fd_, 0);
        if (address == MAP_FAILED) return error("{}: cannot map: {}", path, std::strerror(errno));
        file->mapping_ = static_cast<const std::byte*>(address);
    }
    return file;
}

TensorFile::~TensorFile() {
    if (mapping_ != nullptr) munmap(const_cast<std::byte*>(mapping_), file_bytes_);
    if (fd_ >= 0) close(fd_);
}

void TensorFile::will_need(uint64_t begin, uint64_t end) const {
    static const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const uint64_t from = begin / page * page;
    // Advice only: a refusal costs speed, nothing else.
    madvise(const_cast<std::byte*>(mapping_) + from, end - from, MADV_WILLNEED);
}

Status TensorFile::read(uint64_t begin, uint64_t end, void* into) const {
    auto* to = static_cast<char*>(into);
    while (begin < end) {
        const ssize_t got = pread(fd_, to, end - begin, static_cast<off_t>(begin));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return error("{}: cannot read at byte {}: {}", path_, begin, std::strerror(errno));
        if (got == 0) return error("{}: ends at byte {}, expected {}", path_, begin, end);
        begin += static_cast<uint64_t>(got);
        to += got;
    }
    return {};
}

bool on_network_file_system(const std::string& path) {
    struct statfs info {};
    if (statfs(path.c_str(), &info) != 0) return false;
    constexpr uint32_t kLustre = 0x0BD00BD0, kCifs = 0xFF534D42, kSmb2 = 0xFE534D42,
                       kFuse = 0x65735546, kCeph = 0x00C36400, kGpfs = 0x47504653,
                       kBeegfs = 0x19830326, kNinep = 0x01021997;
    switch (static_cast<uint32_t>(info.f_type)) {
        case NFS_SUPER_MAGIC:
        case SMB_SUPER_MAGIC:
        case AFS_SUPER_MAGIC:
        case CODA_SUPER_MAGIC:
        case kLustre:
        case kCifs:
        case kSmb2:
        case kFuse:
        case kCeph:
        case kGpfs:
        case kBeegfs:
        case kNinep: return true;
        default: return false;
    }
}

}  // namespace aerie::model
