// Checkpoints written by tests: whole ones, and ones that are broken in one chosen way.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace aerie::model {

// A folder that is removed with everything in it when this goes.
class TestFolder {
  public:
    TestFolder();
    ~TestFolder();
    TestFolder(const TestFolder&) = delete;
    TestFolder& operator=(const TestFolder&) = delete;
    const std::string& path() const { return path_; }
    void write(const std::string& name, const std::string& content) const;

  private:
    std::string path_;
};

// One safetensors file. Tensors are placed one after the other.
class TestFile {
  public:
    // data: as many bytes as shape and type need, or fewer: the rest is zero.
    TestFile& add(const std::string& name, const std::string& dtype, std::vector<int64_t> shape,
                  const std::string& data = "");
    // A line of the header as it stands, for what add() would not write.
    TestFile& add_raw(const std::string& json_member);
    std::string header() const;
    std::string content() const { return content(header()); }
    std::string content(const std::string& header) const;  // with another header

  private:
    std::vector<std::string> members_;
    std::string data_;
};

std::string bytes_of_floats(const std::vector<float>& values, DType dtype);

}  // namespace aerie::model
