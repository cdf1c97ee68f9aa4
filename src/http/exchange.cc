#include "http/exchange.h"

#include <strings.h>

#include <utility>

#include "http/response_head.h"

namespace aerie::http {

std::string_view Request::header(std::string_view name) const {
    for (const Header& header : headers) {
        if (header.name.size() == name.size() &&
            strncasecmp(header.name.data(), name.data(), name.size()) == 0) {
            return header.value;
        }
    }
    return {};
}

struct Responder::Owner {
    std::shared_ptr<Exchange> exchange;  // shared with the connection
    ~Owner() { exchange->abandon(); }
};

Responder::Responder(std::shared_ptr<Exchange> exchange)
    : owner_(new Owner{std::move(exchange)}) {}

void Responder::send(int status, std::string_view content_type, std::string body,
                     Headers headers) {
    owner_->exchange->send(status, content_type, std::move(body), headers);
}
void Responder::start_stream(int status, std::string_view content_type, Headers headers) {
    owner_->exchange->start_stream(status, content_type, headers);
}
bool Responder::write(std::string_view bytes) { return owner_->exchange->write(bytes); }
void Responder::finish() { owner_->exchange->finish(); }
void Responder::on_disconnect(std::function<void()> callback) {
    owner_->exchange->on_disconnect(std::move(callback));
}

Exchange::Exchange(const ExchangeOptions& options, OutputWaiter* waiter)
    : options_(options), waiter_(waiter), keep_alive_(options.keep_alive) {}

void Exchange::put_head(int status, std::string_view content_type, const Headers& headers,
                        const size_t* content_length) {
    if (!content_length && options_.is_http_1_0) keep_alive_ = false;
    if (!waiter_ || waiter_->closes_after_this()) keep_alive_ = false;
    ResponseHead head;
    head.status = status;
    head.content_type = content_type;
    head.headers = &headers;
    if (content_length) head.content_length = *content_length;
    head.chunked = !options_.is_http_1_0;
    head.keep_alive = keep_alive_;
    output_ += format_head(head);
    started_ = true;
}

void Exchange::wake_waiter() {
    if (waiter_ && !woken_) {
        woken_ = true;
        waiter_->wake();
    }
}

void Exchange::send(int status, std::string_view content_type, std::string body,
                    const Headers& headers) {
    std::function<void()> dropped;  // ends outside the lock
    std::lock_guard lock(mutex_);
    if (started_ || finished_) return;
    const size_t length = body.size();
    put_head(status, content_type, headers, &length);
    if (!options_.is_head) output_ += body;
    finished_ = true;
    dropped.swap(on_disconnect_);
    wake_waiter();
}

void Exchange::start_stream(int status, std::string_view content_type, const Headers& headers) {
    std::lock_guard lock(mutex_);
    if (started_ || finished_) return;
    put_head(status, content_type, headers, nullptr);
    wake_waiter();
}

bool Exchange::write(std::string_view bytes) {
    std::lock_guard lock(mutex_);
    if (!started_ || finished_ || gone_ || cut_ || !waiter_) return false;
    if (bytes.empty() || options_.is_head) return true;
    // Whoever reads gets its largest piece, however large.
    largest_piece_ = std::max(largest_piece_, bytes.size());
    const size_t num_unsent = output_.size() + num_taken_unsent_ + bytes.size();
    if (num_unsent > options_.max_unsent_bytes + largest_piece_) {
        cut_ = true;
        waiter_->cut();  // which calls client_gone(), on the I/O thread
        return false;
    }
    output_ += options_.is_http_1_0 ? std::string(bytes) : format_chunk(bytes);
    wake_waiter();
    return true;
}

void Exchange::finish() {
    std::function<void()> dropped;
    std::lock_guard lock(mutex_);
    if (!started_ || finished_) return;
    if (!options_.is_http_1_0 && !options_.is_head) output_ += kLastChunk;
    finished_ = true;
    dropped.swap(on_disconnect_);
    wake_waiter();
}

void Exchange::on_disconnect(std::function<void()> callback) {
    {
        std::lock_guard lock(mutex_);
        if (finished_) return;
        if (!gone_ && waiter_) {
            on_disconnect_ = std::move(callback);
            return;
        }
    }
    callback();
}

void Exchange::abandon() {
    std::function<void()> dropped;
    std::lock_guard lock(mutex_);
    if (finished_) return;
    if (started_) {
        cut_ = true;
    } else {
        const std::string body = "the server gave no answer\n";
        const size_t length = body.size();
        put_head(500, "text/plain; charset=utf-8", {}, &length);
        if (!options_.is_head) output_ += body;
    }
    finished_ = true;
    dropped.swap(on_disconnect_);
    wake_waiter();
}

Exchange::Output Exchange::take() {
    std::lock_guard lock(mutex_);
    woken_ = false;
    Output output{.bytes = std::move(output_),
                  .finished = finished_,
                  .cut = cut_,
                  .keep_alive = keep_alive_};
    output_.clear();
    num_taken_unsent_ += output.bytes.size();
    return output;
}

void Exchange::sent(size_t num_bytes) {
    std::lock_guard lock(mutex_);
    num_taken_unsent_ -= num_bytes;
}

void Exchange::client_gone() {
    std::function<void()> callback;
    {
        std::lock_guard lock(mutex_);
        gone_ = true;
        callback.swap(on_disconnect_);
    }
    if (callback) callback();
}

void Exchange::detach() {
    std::lock_guard lock(mutex_);
    waiter_ = nullptr;
}

}  // namespace aerie::http
