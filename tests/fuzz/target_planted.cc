// Goes wrong where the input holds BUG, in the way that PLANTED says: whether the driver sees it.
#include <climits>
#include <cstdlib>
#include <cstring>

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text = aerie::fuzz::text_of(data, size);
    const char* const variable = std::getenv("PLANTED");
    const std::string_view planted = variable == nullptr ? "" : variable;
    if (text.find("BUG") == std::string_view::npos) return 0;
    if (planted == "abort") std::abort();
    if (planted == "crash") *static_cast<volatile int*>(nullptr) = 1;
    if (planted == "overflow") return static_cast<const volatile uint8_t*>(data)[size];
    if (planted == "undefined") {
        volatile int most = INT_MAX;
        most = most + 1;
    }
    if (planted == "hang") {
        for (volatile bool forever = true; forever;) {
        }
    }
    if (planted == "leak") {
        static void* volatile last;
        last = std::malloc(7);
        last = nullptr;
    }
    return 0;
}
