// The text before a response's body.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "http/message.h"

namespace aerie::http {

struct ResponseHead {
    int status = 200;
    std::string_view content_type;        // empty: no such header
    const Headers* headers = nullptr;     // further ones; a CR or LF in them becomes a space
    std::optional<size_t> content_length; // none: a stream
    bool chunked = false;                 // how the stream is framed
    bool keep_alive = true;
};

// From the status line to the empty line.
std::string format_head(const ResponseHead& head);

// One chunk of a chunked body. `bytes` must not be empty: that would be the last chunk.
std::string format_chunk(std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";

}  // namespace aerie::http
