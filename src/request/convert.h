// request/'s structs as messages of proto/engine.proto and back. What came from a peer may hold
// anything: from_proto of a value that no aerie sends gives a valid struct all the same (an unknown
// finish reason becomes kAbort).
#pragma once

#include <string>

#include "request/request.h"

namespace aerie::proto {
class AddRequest;
class SamplingParams;
class TokenOut;
}  // namespace aerie::proto

namespace aerie {

void to_proto(const SamplingParams& sampling, proto::SamplingParams& into);
void to_proto(const Request& request, proto::AddRequest& into);
void to_proto(const TokenOut& token, proto::TokenOut& into);

SamplingParams from_proto(const proto::SamplingParams& sampling);
Request from_proto(const proto::AddRequest& request);
TokenOut from_proto(const proto::TokenOut& token);

// The last token of a request that could not go on.
TokenOut aborted(RequestId id, std::string why, ErrorKind kind = ErrorKind::kUnavailable);

}  // namespace aerie
