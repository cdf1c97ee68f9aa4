// What a fuzz target is: one function that reads bytes as its part of the server would from
// outside. It may return early; it must not crash, hang, leak, or keep anything that makes the same
// bytes do something else the next time. libFuzzer and driver.cc call it alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace aerie::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
    return {reinterpret_cast<const char*>(data), size};
}

// Cuts `text` behind its first kNextPart; `text` keeps the rest, which is empty where there is
// none. Inputs of several files are their texts with this line between them.
inline constexpr std::string_view kNextPart = "\n====\n";
std::string_view take_part(std::string_view& text);

// Ends the process where a promise of the code is broken: for a fuzzer that is a crash.
void require(bool holds, std::string_view promise);

// A folder of this process in memory where the machine has that; gone when the process ends well.
class Folder {
  public:
    Folder();
    ~Folder();
    const std::string& path() const { return path_; }
    // An empty file where `bytes` is empty.
    std::string write(const char* name, std::string_view bytes) const;

  private:
    std::string path_;
};

}  // namespace aerie::fuzz
