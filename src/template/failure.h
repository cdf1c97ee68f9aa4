// How compiling or rendering stops, inside this folder only: ChatTemplate turns it into an Error.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>

namespace aerie::jinja {

struct Failure {
    std::string message;
    int line = 0;         // 0: not known here
    bool raised = false;  // by the template's raise_exception: the message stands alone
};

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
    throw Failure{fmt::format(format, std::forward<Args>(args)...)};
}

template <typename... Args>
[[noreturn]] void fail_at(int line, fmt::format_string<Args...> format, Args&&... args) {
    throw Failure{fmt::format(format, std::forward<Args>(args)...), line};
}

}  // namespace aerie::jinja
