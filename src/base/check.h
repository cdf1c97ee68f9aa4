// CHECK: a bug in aerie ends the process, with the place and the values. Never used on what a user
// or a peer sent: that is a Result.
#pragma once

#include <fmt/core.h>

#include <string>

namespace aerie {
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& message);
}  // namespace aerie

// CHECK(condition) or CHECK(condition, "format {}", value...)
#define CHECK(condition, ...)                                                          \
    do {                                                                               \
        if (!(condition)) [[unlikely]]                                                 \
            ::aerie::check_failed(__FILE__, __LINE__, #condition, fmt::format("" __VA_ARGS__)); \
    } while (false)

#define CHECK_EQ(a, b)                                                                   \
    do {                                                                                 \
        const auto& check_a_ = (a);                                                      \
        const auto& check_b_ = (b);                                                      \
        if (!(check_a_ == check_b_)) [[unlikely]]                                        \
            ::aerie::check_failed(__FILE__, __LINE__, #a " == " #b,                      \
                                  fmt::format("{} against {}", check_a_, check_b_));     \
    } while (false)
