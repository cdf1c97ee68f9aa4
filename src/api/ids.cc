#include "api/ids.h"

#include <sys/random.h>

#include <vector>

#include "base/check.h"

namespace aerie::api {

std::string random_hex(int num_digits) {
    std::vector<unsigned char> bytes((static_cast<size_t>(num_digits) + 1) / 2);
    CHECK_EQ(getrandom(bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    std::string text;
    for (const unsigned char byte : bytes) {
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    text.resize(static_cast<size_t>(num_digits));
    return text;
}

}  // namespace aerie::api
