#include "app/fingerprint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "base/hash.h"
#include "base/json.h"

namespace aerie {
namespace {

namespace fs = std::filesystem;

uint64_t hash_text(const std::string& text, uint64_t seed) {
    return hash_bytes(text.data(), text.size(), seed);
}

// The header is a 64-bit length and that many bytes of JSON.
uint64_t hash_header(const fs::path& path, uint64_t size, uint64_t seed) {
    constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
    std::ifstream file(path, std::ios::binary);
    uint64_t length = 0;
    file.read(reinterpret_cast<char*>(&length), sizeof length);
    if (!file || length > size || length > kMaxHeaderBytes) return seed;
    std::string header(length, '\0');
    file.read(header.data(), static_cast<std::streamsize>(length));
    return hash_text(header, seed);
}

}  // namespace

uint64_t model_fingerprint(const std::string& folder) {
    std::error_code failure;
    std::vector<fs::path> weights;
    for (const auto& entry : fs::directory_iterator(folder, failure)) {
        if (entry.path().extension() == ".safetensors") weights.push_back(entry.path());
    }
    auto config = read_file(folder + "/config.json");
    if (failure || !config) return 0;
    std::sort(weights.begin(), weights.end());
    uint64_t hash = hash_text(*config, 0);
    for (const fs::path& path : weights) {
        const uint64_t size = fs::file_size(path, failure);
        hash = hash_text(path.filename().string(), hash ^ size);
        hash = hash_header(path, size, hash);
    }
    return hash;
}

}  // namespace aerie
