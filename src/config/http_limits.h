// What one client may make the server do: the settings http_…, docs/limits.md. Plain data.
#pragma once

namespace aerie {

// Of a connection and its requests as bytes.
struct HttpLimits {
    int max_connections = 4096;
    double max_body_mb = 64;    // MiB
    double max_header_kb = 64;  // KiB, the request line included
    int max_headers = 128;
    double max_url_kb = 16;        // KiB
    double stream_buffer_mb = 4;   // MiB of an answer that its client has not taken
    double header_timeout_s = 15;  // of a TLS handshake too
    double body_timeout_s = 120;
    double idle_timeout_s = 75;   // between two requests
    double write_timeout_s = 30;  // without the client taking a byte
};

// Of what a request's JSON asks for.
struct RequestLimits {
    int max_json_depth = 200;
    int max_messages = 16384;
    int max_tools = 1024;
    int max_stop_strings = 256;
    int max_n = 128;
    int max_logit_bias = 1024;  // entries
};

}  // namespace aerie
