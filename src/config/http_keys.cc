#include "config/key_row.h"

namespace aerie {

std::vector<ConfigKey> http_rows() {
    return {
        row<FIELD(settings.ssl_certfile)>(
            "", "ssl_certfile",
            {.meaning = "PEM file with the certificate and its chain: serve HTTPS",
             .unset = "none"}),
        row<FIELD(settings.ssl_keyfile)>(
            "", "ssl_keyfile",
            {.meaning = "PEM file with the private key of ssl_certfile", .unset = "none"}),
        row<FIELD(settings.ssl_keyfile_password)>(
            "", "ssl_keyfile_password",
            {.meaning = "of an encrypted ssl_keyfile", .unset = "none", .secret = true}),
        row<FIELD(settings.ssl_ca_certs)>(
            "", "ssl_ca_certs",
            {.meaning = "PEM file: clients must show a certificate that one of these has signed",
             .unset = "none"}),
        row<FIELD(settings.http.max_connections)>("", "http_max_connections",
                                                  {.meaning = "open connections; beyond: 503",
                                                   .min = 1,
                                                   .max = 1e6,
                                                   .unit = "connections"}),
        row<FIELD(settings.http.max_body_mb)>("", "http_max_body_mb",
                                              {.meaning = "size of a request body; beyond: 413",
                                               .min = 0.001,
                                               .max = 4096,
                                               .unit = "MiB"}),
        row<FIELD(settings.http.max_header_kb)>(
            "", "http_max_header_kb",
            {.meaning = "size of the request line and all headers; beyond: 431",
             .min = 1,
             .max = 1024,
             .unit = "KiB"}),
        row<FIELD(settings.http.max_headers)>("", "http_max_headers",
                                              {.meaning = "headers of a request; beyond: 431",
                                               .min = 8,
                                               .max = 10000,
                                               .unit = "headers"}),
        row<FIELD(settings.http.max_url_kb)>(
            "", "http_max_url_kb",
            {.meaning = "length of a URL; beyond: 414", .min = 0.25, .max = 1024, .unit = "KiB"}),
        row<FIELD(settings.http.stream_buffer_mb)>(
            "", "http_stream_buffer_mb",
            {.meaning = "what a client may leave untaken of a stream; beyond: cut off",
             .min = 0.0625,
             .max = 1024,
             .unit = "MiB"}),
        row<FIELD(settings.http.header_timeout_s)>(
            "", "http_header_timeout_s",
            {.meaning = "from the first byte to the end of the headers, and for a TLS handshake; "
                        "beyond: 408, closed",
             .min = 0.1,
             .max = 86400,
             .unit = "seconds"}),
        row<FIELD(settings.http.body_timeout_s)>(
            "", "http_body_timeout_s",
            {.meaning = "for a whole request body; beyond: 408, closed",
             .min = 0.1,
             .max = 86400,
             .unit = "seconds"}),
        row<FIELD(settings.http.idle_timeout_s)>(
            "", "http_idle_timeout_s",
            {.meaning = "between two requests of a connection; beyond: closed",
             .min = 0.1,
             .max = 86400,
             .unit = "seconds"}),
        row<FIELD(settings.http.write_timeout_s)>(
            "", "http_write_timeout_s",
            {.meaning = "without the client taking a byte; beyond: cut off",
             .min = 0.1,
             .max = 86400,
             .unit = "seconds"}),
        row<FIELD(settings.requests.max_json_depth)>(
            "", "http_max_json_depth",
            {.meaning = "levels of a request's JSON; beyond: 400",
             .min = 8,
             .max = 1000,
             .unit = "levels"}),
        row<FIELD(settings.requests.max_messages)>("", "http_max_messages",
                                                   {.meaning = "messages of a chat; beyond: 400",
                                                    .min = 1,
                                                    .max = 1e6,
                                                    .unit = "messages"}),
        row<FIELD(settings.requests.max_tools)>(
            "", "http_max_tools",
            {.meaning = "tools of a request; beyond: 400", .min = 0, .max = 1e5, .unit = "tools"}),
        row<FIELD(settings.requests.max_stop_strings)>(
            "", "http_max_stop_strings",
            {.meaning = "stop strings of a request; beyond: 400",
             .min = 0,
             .max = 1e5,
             .unit = "strings"}),
        row<FIELD(settings.requests.max_n)>("", "http_max_n",
                                            {.meaning = "choices of a prompt; beyond: 400",
                                             .min = 1,
                                             .max = 1024,
                                             .unit = "choices"}),
        row<FIELD(settings.requests.max_logit_bias)>(
            "", "http_max_logit_bias",
            {.meaning = "entries of logit_bias; beyond: 400",
             .min = 0,
             .max = 1e6,
             .unit = "entries"}),
    };
}

}  // namespace aerie
