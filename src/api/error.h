// What an API answers where it does not answer what was asked.
#pragma once

#include <optional>
#include <string>

namespace aerie::api {

struct ApiError {
    int status = 400;     // HTTP
    std::string message = {};  // names the field, the value and what was expected
    std::string param = {};    // the request's field; empty: none in particular
    std::string code = {};     // a word for programs, e.g. "model_not_found"; empty: none
};

using MaybeError = std::optional<ApiError>;

}  // namespace aerie::api
