#include "fuzz.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace aerie::fuzz {

std::string_view take_part(std::string_view& text) {
    const size_t end = text.find(kNextPart);
    const std::string_view part = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + kNextPart.size());
    return part;
}

void require(bool holds, std::string_view promise) {
    if (holds) return;
    std::fprintf(stderr, "broken promise: %.*s\n", static_cast<int>(promise.size()),
                 promise.data());
    std::abort();
}

Folder::Folder() {
    const char* const base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    path_ = std::string(base) + "/aerie_fuzz_XXXXXX";
    require(mkdtemp(path_.data()) != nullptr, "there is a folder for temporary files");
}

Folder::~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

std::string Folder::write(const char* name, std::string_view bytes) const {
    const std::string path = path_ + "/" + name;
    std::FILE* const file = std::fopen(path.c_str(), "wb");
    require(file != nullptr, "a temporary file can be made");
    const bool whole =
        bytes.empty() || std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
    require(std::fclose(file) == 0 && whole, "a temporary file can be written");
    return path;
}

}  // namespace aerie::fuzz
