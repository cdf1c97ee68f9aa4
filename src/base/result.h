// Result<T>: the value, or the message of an expected failure. Bugs are CHECKed instead (check.h).
#pragma once

#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace aerie {

struct Error {
    std::string message;  // one line, names the value and what was expected
};

template <typename... Args>
Error error(fmt::format_string<Args...> format, Args&&... args) {
    return Error{fmt::format(format, std::forward<Args>(args)...)};
}

template <typename T>
class [[nodiscard]] Result {
  public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit
    Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

    bool ok() const { return state_.index() == 0; }
    explicit operator bool() const { return ok(); }

    T& value() & {
        CHECK(ok(), "value() of a failed result: {}", std::get<1>(state_).message);
        return std::get<0>(state_);
    }
    const T& value() const& { return const_cast<Result*>(this)->value(); }
    T&& value() && { return std::move(value()); }
    T& operator*() & { return value(); }
    T&& operator*() && { return std::move(value()); }
    T* operator->() { return &value(); }

    const Error& error() const { return std::get<1>(state_); }
    const std::string& message() const { return error().message; }

  private:
    std::variant<T, Error> state_;
};

// Success without a value.
template <>
class [[nodiscard]] Result<void> {
  public:
    Result() = default;
    Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit

    bool ok() const { return !error_; }
    explicit operator bool() const { return ok(); }
    const Error& error() const { return *error_; }
    const std::string& message() const { return error_->message; }

  private:
    std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace aerie

// Returns from the calling function with the error of a failed Result.
#define RETURN_IF_ERROR(expression)                                      \
    do {                                                                 \
        if (auto status_ = (expression); !status_) return status_.error(); \
    } while (false)
