#include "app/bench_load.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <memory>
#include <optional>

#include "app/bench_stream.h"
#include "base/clock.h"
#include "base/json.h"

namespace aerie::bench {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;

// Results instead of exceptions: co_await gives {error_code, …}.
constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

constexpr size_t kReadBytes = 16 << 10;
constexpr size_t kErrorBodyBytes = 64 << 10;

using Addresses = tcp::resolver::results_type;
using HttpRequest = http::request<http::string_body>;

uint64_t mix(uint64_t x) {  // splitmix64
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

Result<Addresses> resolve(asio::io_context& io, const Endpoint& endpoint) {
    tcp::resolver resolver(io);
    error_code ec;
    auto addresses = resolver.resolve(endpoint.host, std::to_string(endpoint.port), ec);
    if (ec) return error("cannot resolve {}: {}", endpoint.host, ec.message());
    return addresses;
}

HttpRequest make_request(http::verb verb, const std::string& path, const Endpoint& endpoint,
                         const std::string& api_key) {
    HttpRequest request(verb, path, 11);
    request.set(http::field::host, fmt::format("{}:{}", endpoint.host, endpoint.port));
    if (!api_key.empty()) request.set(http::field::authorization, "Bearer " + api_key);
    return request;
}

// One kept-alive connection. Its owner runs one exchange at a time.
class Connection {
  public:
    Connection(asio::io_context& io, const Addresses& addresses, double timeout_s)
        : io_(io), addresses_(addresses), timeout_s_(timeout_s) {}

    // Sends the request and gives the body's bytes to sink(bytes) as they come, once status() is
    // known. Returns why it failed, or nothing.
    template <typename Sink>
    asio::awaitable<std::string> exchange(HttpRequest& request, Sink sink) {
        for (;;) {
            const bool reused = stream_.has_value();
            status_ = 0;
            if (!reused) buffer_.clear();
            const error_code ec = co_await attempt(request, sink);
            if (!ec) co_return std::string();
            stream_.reset();
            // The server may close a connection that is idle; that is not this request's failure.
            if (reused && status_ == 0 && ec != beast::error::timeout) continue;
            co_return describe(ec);
        }
    }

    // Of the last exchange; 0 where no answer came.
    int status() const { return static_cast<int>(status_); }

  private:
    template <typename Sink>
    asio::awaitable<error_code> attempt(HttpRequest& request, Sink& sink) {
        const auto limit = std::chrono::duration_cast<std::chrono::steady_clock::duration>(
            std::chrono::duration<double>(timeout_s_));
        doing_ = "connect";
        if (!stream_) {
            stream_.emplace(io_);
            stream_->expires_after(limit);
            auto [ec, at] = co_await stream_->async_connect(addresses_, kTuple);
            if (ec) co_return ec;
            error_code ignored;
            stream_->socket().set_option(tcp::no_delay(true), ignored);
        }
        stream_->expires_after(limit);
        doing_ = "send";
        auto [send_error, sent] = co_await http::async_write(*stream_, request, kTuple);
        if (send_error) co_return send_error;
        doing_ = "receive";
        http::response_parser<http::buffer_body> parser;
        parser.body_limit(boost::none);
        auto [head_error, head_size] =
            co_await http::async_read_header(*stream_, buffer_, parser, kTuple);
        if (head_error) co_return head_error;
        status_ = parser.get().result_int();
        if (const error_code ec = co_await read_body(parser, sink)) co_return ec;
        if (!parser.keep_alive()) stream_.reset();
        co_return error_code();
    }

    // Reads and parses apart: Beast's own eager read goes on reading until it is at no chunk's
    // border, which in a stream of small chunks is its end. All chunks of one read are one call of
    // the sink.
    template <typename Sink>
    asio::awaitable<error_code> read_body(http::response_parser<http::buffer_body>& parser,
                                          Sink& sink) {
        parser.eager(true);
        while (!parser.is_done()) {
            if (buffer_.size() > 0) {
                auto& body = parser.get().body();
                body = {.data = bytes_, .size = sizeof bytes_, .more = true};
                error_code ec;
                buffer_.consume(parser.put(buffer_.data(), ec));
                const size_t num_bytes = sizeof bytes_ - body.size;
                if (num_bytes > 0) sink(std::string_view(bytes_, num_bytes));
                if (ec == http::error::need_buffer) continue;
                if (ec && ec != http::error::need_more) co_return ec;
                if (parser.is_done()) break;
            }
            auto [ec, size] =
                co_await stream_->async_read_some(buffer_.prepare(kReadBytes), kTuple);
            if (ec == asio::error::eof) {  // the end of a body of unknown length, or an error
                error_code incomplete;
                parser.put_eof(incomplete);
                if (incomplete) co_return incomplete;
            } else if (ec) {
                co_return ec;
            }
            buffer_.commit(size);
        }
        co_return error_code();
    }

    std::string describe(error_code ec) const {
        if (ec == beast::error::timeout) return fmt::format("timed out after {} s", timeout_s_);
        return fmt::format("{}: {}", doing_, ec.message());
    }

    asio::io_context& io_;
    const Addresses& addresses_;
    const double timeout_s_;
    std::optional<beast::tcp_stream> stream_;
    beast::flat_buffer buffer_;
    const char* doing_ = "";
    unsigned status_ = 0;
    char bytes_[kReadBytes];
};

// Runs requests [first_index, first_index + requests) in `concurrency` streams.
class Run {
  public:
    Run(const Endpoint& endpoint, const LoadShape& shape, int64_t first_index)
        : endpoint_(endpoint), shape_(shape), first_index_(first_index) {
        result_.requests.resize(static_cast<size_t>(shape.requests));
    }

    Result<LoadResult> run() {
        auto addresses = resolve(io_, endpoint_);
        if (!addresses) return addresses.error();
        addresses_ = *addresses;
        begin_ = Clock::now();
        for (int i = 0; i < std::min(shape_.concurrency, shape_.requests); ++i) {
            asio::co_spawn(io_, stream(), asio::detached);
        }
        io_.run();
        return std::move(result_);
    }

  private:
    double now_s() const { return seconds_since(begin_); }

    asio::awaitable<void> stream() {
        auto connection = std::make_unique<Connection>(io_, addresses_, shape_.timeout_s);
        asio::steady_timer timer(io_);
        while (next_ < shape_.requests) {
            const int i = next_++;
            HttpRequest request = completion(i);
            RequestRecord& record = result_.requests[static_cast<size_t>(i)];
            record.started_s = now_s();
            if (shape_.rate > 0) {
                // Late because no stream was free is late for the client, so it counts.
                record.started_s = i / shape_.rate;
                timer.expires_at(begin_ + std::chrono::duration_cast<Clock::duration>(
                                              std::chrono::duration<double>(record.started_s)));
                co_await timer.async_wait(kTuple);
            }
            co_await one(*connection, request, output_len(shape_, first_index_ + i), record);
        }
    }

    asio::awaitable<void> one(Connection& connection, HttpRequest& request, int num_tokens,
                              RequestRecord& record) {
        CompletionStream completion;
        std::string refusal;
        auto sink = [&](std::string_view bytes) {
            if (connection.status() == 200) {
                const int num_new = completion.feed(bytes);
                if (num_new > 0) record.arrivals.push_back({now_s(), num_new});
            } else if (refusal.size() < kErrorBodyBytes) {
                refusal += bytes;
            }
        };
        record.failure = co_await connection.exchange(request, sink);
        record.ended_s = now_s();
        record.num_cached = completion.cached_tokens();
        if (!completion.has_token_ids() && completion.num_tokens() > 0) {
            result_.counted_by_ids = false;
        }
        if (!record.failure.empty()) co_return;
        record.failure =
            connection.status() == 200
                ? completion.why_incomplete(num_tokens)
                : fmt::format("HTTP {}: {}", connection.status(), error_message(refusal));
    }

    HttpRequest completion(int i) const {
        Json prompt = Json::array();
        for (const int32_t id : prompt_ids(shape_, first_index_ + i)) prompt.push_back(id);
        HttpRequest request =
            make_request(http::verb::post, "/v1/completions", endpoint_, shape_.api_key);
        request.set(http::field::content_type, "application/json");
        request.body() = Json::object()
                             .set("model", shape_.model)
                             .set("max_tokens", output_len(shape_, first_index_ + i))
                             .set("temperature", 0)
                             .set("ignore_eos", true)
                             .set("stream", true)
                             .set("stream_options", Json::object().set("include_usage", true))
                             .set("return_token_ids", true)
                             .set("prompt", std::move(prompt))
                             .dump();
        request.prepare_payload();
        return request;
    }

    const Endpoint& endpoint_;
    const LoadShape& shape_;
    const int64_t first_index_;
    asio::io_context io_{1};
    Addresses addresses_;
    TimePoint begin_;
    int next_ = 0;
    LoadResult result_;
};

Result<std::string> first_model(const Endpoint& endpoint, const LoadShape& shape) {
    auto reply = http_get(endpoint, "/v1/models", shape.api_key, std::min(shape.timeout_s, 30.0));
    if (!reply) return reply.error();
    if (reply->status != 200) {
        return error("GET /v1/models: HTTP {}: {}", reply->status, error_message(reply->body));
    }
    auto json = Json::parse(reply->body);
    if (json && (*json)["data"].is_array() && !(*json)["data"].as_array().empty()) {
        const Json& id = (*json)["data"].as_array()[0]["id"];
        if (id.is_string()) return id.as_string();
    }
    return error("GET /v1/models: found {}, expected a list of models; name one with --model",
                 reply->body.substr(0, 200));
}

}  // namespace

Result<Endpoint> parse_url(const std::string& url) {
    const Error mistake = error("found {}, expected http://HOST[:PORT]", url);
    constexpr std::string_view kScheme = "http://";
    std::string_view rest = url;
    if (rest.substr(0, kScheme.size()) != kScheme) return mistake;
    rest.remove_prefix(kScheme.size());
    if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
        const std::string_view path = rest.substr(slash);
        if (path != "/" && path != "/v1" && path != "/v1/") return mistake;
        rest = rest.substr(0, slash);
    }
    Endpoint endpoint{.host = "", .port = 80};
    std::string_view after_host;
    if (!rest.empty() && rest.front() == '[') {  // an IPv6 address
        const size_t end = rest.find(']');
        if (end == std::string_view::npos) return mistake;
        endpoint.host = rest.substr(1, end - 1);
        after_host = rest.substr(end + 1);
    } else {
        const size_t colon = std::min(rest.find(':'), rest.size());
        endpoint.host = rest.substr(0, colon);
        after_host = rest.substr(colon);
    }
    if (!after_host.empty()) {
        const char* end = after_host.data() + after_host.size();
        const auto [stop, ec] = std::from_chars(after_host.data() + 1, end, endpoint.port);
        if (after_host[0] != ':' || ec != std::errc() || stop != end) return mistake;
    }
    if (endpoint.host.empty() || endpoint.port < 1 || endpoint.port > 65535) return mistake;
    return endpoint;
}

namespace {

const Example& example(const LoadShape& shape, int64_t index) {
    const auto count = static_cast<int64_t>(shape.examples.size());
    return shape.examples[(index % count + count) % count];
}

}  // namespace

int output_len(const LoadShape& shape, int64_t index) {
    return shape.examples.empty() ? shape.output_len : example(shape, index).output_len;
}

std::vector<int32_t> prompt_ids(const LoadShape& shape, int64_t index) {
    if (!shape.examples.empty()) return example(shape, index).prompt_ids;
    const int prefix_len = shape.num_prefixes > 0 ? shape.prefix_len : 0;
    std::vector<int32_t> ids(static_cast<size_t>(prefix_len) + shape.prompt_len);
    const auto fill = [&](size_t begin, size_t end, uint64_t state) {
        for (size_t i = begin; i < end; ++i) {
            state = mix(state);
            ids[i] =
                3 + static_cast<int32_t>(state % static_cast<uint64_t>(shape.max_token_id - 2));
        }
    };
    const auto seed = static_cast<uint64_t>(shape.seed);
    if (prefix_len > 0) {
        const int64_t which = index < 0 ? index : index % shape.num_prefixes;
        fill(1, static_cast<size_t>(prefix_len), mix(~seed) ^ static_cast<uint64_t>(which));
    }
    fill(static_cast<size_t>(std::max(prefix_len, 1)), ids.size(),
         mix(seed) ^ static_cast<uint64_t>(index));
    return ids;
}

Result<LoadResult> run_load(const Endpoint& endpoint, const LoadShape& given) {
    LoadShape shape = given;
    if (shape.model.empty()) {
        auto model = first_model(endpoint, shape);
        if (!model) return model.error();
        shape.model = *model;
    }
    if (shape.warmup > 0) {
        LoadShape warmup = shape;
        warmup.requests = shape.warmup;
        warmup.rate = 0;
        warmup.output_len = std::min(shape.output_len, 16);
        auto warmed = Run(endpoint, warmup, -int64_t{shape.warmup}).run();
        if (!warmed) return warmed.error();
        for (const RequestRecord& record : warmed->requests) {
            if (!record.failure.empty()) return error("warm-up: {}", record.failure);
        }
    }
    return Run(endpoint, shape, 0).run();
}

Result<HttpReply> http_get(const Endpoint& endpoint, const std::string& path,
                           const std::string& api_key, double limit_s) {
    asio::io_context io{1};
    auto addresses = resolve(io, endpoint);
    if (!addresses) return addresses.error();
    HttpReply reply;
    std::string failure;
    HttpRequest request = make_request(http::verb::get, path, endpoint, api_key);
    auto connection = std::make_unique<Connection>(io, *addresses, limit_s);
    auto get = [&]() -> asio::awaitable<void> {
        failure = co_await connection->exchange(request, [&](std::string_view bytes) {
            reply.body += bytes;
        });
        reply.status = connection->status();
    };
    asio::co_spawn(io, get, asio::detached);
    io.run();
    if (failure.empty()) return reply;
    return error("GET http://{}:{}{}: {}", endpoint.host, endpoint.port, path, failure);
}

}  // namespace aerie::bench
