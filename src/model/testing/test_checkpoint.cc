#include "model/testing/test_checkpoint.h"

#include <fmt/core.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "model/tensor_file.h"

namespace aerie::model {

TestFolder::TestFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "aerie_model_XXXXXX").string();
    CHECK(mkdtemp(pattern.data()) != nullptr, "{}", pattern);
    path_ = pattern;
}

TestFolder::~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

void TestFolder::write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ + "/" + name, std::ios::binary) << content;
}

TestFile& TestFile::add(const std::string& name, const std::string& dtype,
                        std::vector<int64_t> shape, const std::string& data) {
    size_t bytes = dtype == "F8_E4M3" ? 1 : dtype == "BF16" || dtype == "F16" ? 2 : 4;
    for (int64_t extent : shape) bytes *= static_cast<size_t>(extent);
    std::string padded = data;
    padded.resize(bytes, '\0');
    members_.push_back(fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name,
                                   dtype, shape_text(shape), data_.size(), data_.size() + bytes));
    data_ += padded;
    return *this;
}

TestFile& TestFile::add_raw(const std::string& json_member) {
    members_.push_back(json_member);
    return *this;
}

std::string TestFile::header() const {
    std::string header = "{";
    for (const std::string& member : members_) header += (header.size() > 1 ? "," : "") + member;
    return header + "}";
}

std::string TestFile::content(const std::string& header) const {
    const uint64_t length = header.size();
    std::string out(sizeof length, '\0');
    std::memcpy(out.data(), &length, sizeof length);
    return out + header + data_;
}

std::string bytes_of_floats(const std::vector<float>& values, DType dtype) {
    std::string out;
    for (float value : values) {
        const BF16 half = bf16_from_f32(value);
        const void* from = dtype == DType::kBF16 ? static_cast<const void*>(&half) : &value;
        out.append(static_cast<const char*>(from), size_of(dtype));
    }
    return out;
}

}  // namespace aerie::model
