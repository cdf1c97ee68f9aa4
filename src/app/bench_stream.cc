#include "app/bench_stream.h"

namespace aerie::bench {

void SseParser::feed(std::string_view bytes, std::vector<std::string>& events) {
    while (!bytes.empty()) {
        const size_t end = bytes.find('\n');
        if (end == std::string_view::npos) {
            unfinished_ += bytes;
            return;
        }
        if (unfinished_.empty()) {
            line(bytes.substr(0, end), events);
        } else {
            unfinished_ += bytes.substr(0, end);
            line(unfinished_, events);
            unfinished_.clear();
        }
        bytes.remove_prefix(end + 1);
    }
}

void SseParser::line(std::string_view text, std::vector<std::string>& events) {
    if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
    if (text.empty()) {  // the end of an event
        if (has_data_) events.push_back(std::move(data_));
        data_.clear();
        has_data_ = false;
        return;
    }
    constexpr std::string_view kData = "data:";
    if (text.substr(0, kData.size()) != kData) return;  // comments, event:, id:, retry:
    text.remove_prefix(kData.size());
    if (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    if (has_data_) data_ += '\n';
    data_ += text;
    has_data_ = true;
}

int CompletionStream::feed(std::string_view bytes) {
    events_.clear();
    parser_.feed(bytes, events_);
    int tokens = 0;
    for (const std::string& data : events_) {
        if (data == "[DONE]") {
            done_ = true;
        } else if (auto event = Json::parse(data); event) {
            tokens += count(*event);
        } else if (failure_.empty()) {
            failure_ = "an event that is not JSON: " + data.substr(0, 200);
        }
    }
    num_tokens_ += tokens;
    return tokens;
}

int CompletionStream::count(const Json& event) {
    if (event.find("error") || event["object"] == Json("error")) {
        if (failure_.empty()) failure_ = "error event: " + error_message(event.dump());
        return 0;
    }
    const Json& usage = event["usage"]["completion_tokens"];
    if (usage.is_int()) usage_tokens_ = usage.as_int();
    const Json& cached = event["usage"]["prompt_tokens_details"]["cached_tokens"];
    if (cached.is_int()) cached_tokens_ = cached.as_int();
    const Json& choices = event["choices"];
    if (!choices.is_array()) return 0;
    int tokens = 0;
    for (const Json& choice : choices.as_array()) {
        const Json& finish = choice["finish_reason"];
        if (finish.is_string()) finish_reason_ = finish.as_string();
        const Json& ids = choice["token_ids"];
        const Json& text = choice["text"];
        if (ids.is_array()) {
            has_token_ids_ = true;
            tokens += static_cast<int>(ids.as_array().size());
        } else if (!has_token_ids_ && text.is_string() && !text.as_string().empty()) {
            ++tokens;
        }
    }
    return tokens;
}

std::string CompletionStream::why_incomplete(int expected) const {
    if (!failure_.empty()) return failure_;
    if (!done_) return "the stream ended before [DONE]";
    const int64_t tokens = has_token_ids_ ? num_tokens_ : usage_tokens_;
    if (tokens < 0 && num_tokens_ == 0) return "the stream brought no token";
    if (tokens >= 0 && tokens != expected) {
        return fmt::format("{} tokens came, {} were asked for (finish_reason {})", tokens, expected,
                           finish_reason_.empty() ? "none" : finish_reason_);
    }
    return {};
}

std::string error_message(std::string_view body) {
    if (auto parsed = Json::parse(body); parsed) {
        const Json& json = *parsed;
        for (const Json& message :
             {json["error"]["message"], json["message"], json["error"], json["detail"]}) {
            if (message.is_string()) return message.as_string();
        }
    }
    std::string text(body.substr(0, 200));
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    return text;
}

}  // namespace aerie::bench
