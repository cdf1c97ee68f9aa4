// The one table of what the server answers to.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "frontend/body_schemas.h"

namespace aerie::frontend {

struct HttpCall;
class Handlers;

enum class Auth { kOpen, kNormal, kAdmin };
enum class Runs { kAtOnce, kOnWorker };  // kAtOnce: on the I/O thread, so it must not wait

struct Route {
    const char* method;
    const char* path;  // "{id}" at its end takes the rest
    Auth auth;
    Runs runs;
    void (Handlers::*handler)(HttpCall&);
    const char* summary;          // for /openapi.json and /docs
    BodySchema body = nullptr;    // null: the request's body is not read
    const char* reply = nullptr;  // the schema of what a 200 holds; null: not told
};

std::span<const Route> routes();

struct Match {
    const Route* route = nullptr;  // null: see the rest
    std::string parameter;         // what {id} took
    std::string allow;             // methods of that path, where only the method is wrong
};

// HEAD is GET. Where the same path without /v1 is an OpenAI one, it matches too.
Match match(std::string_view method, std::string_view path);

// "; did you mean /v1/models?", or nothing.
std::string probable_path(std::string_view path);

}  // namespace aerie::frontend
