#include "api/anthropic/reply.h"

#include <fmt/core.h>

#include <optional>
#include <utility>

#include "api/ids.h"
#include "base/json.h"

namespace aerie::anthropic {
namespace {

using api::ApiError;
using api::Body;
using api::Piece;
using api::Usage;
using parse::Event;
using Kind = parse::Event::Kind;

constexpr const char* kJson = "application/json";

const char* error_type(int status) {
    switch (status) {
        case 401:
            return "authentication_error";
        case 403:
            return "permission_error";
        case 404:
            return "not_found_error";
        case 413:
            return "request_too_large";
        case 429:
            return "rate_limit_error";
        case 503:
        case 529:
            return "overloaded_error";
        default:
            return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

Json error_json(const ApiError& error) {
    return Json::object()
        .set("type", "error")
        .set("error",
             Json::object().set("type", error_type(error.status)).set("message", error.message));
}

Json usage_json(const Usage& usage) {
    return Json::object()
        .set("input_tokens", usage.prompt_tokens - usage.cached_tokens)
        .set("cache_creation_input_tokens", 0)
        .set("cache_read_input_tokens", usage.cached_tokens)
        .set("output_tokens", usage.completion_tokens);
}

// What ended an answer that the operator aborted is told as a limit: it is not complete.
const char* stop_reason(const Piece& piece, bool has_calls) {
    if (piece.finish != FinishReason::kStop) return "max_tokens";
    if (!piece.matched_string.empty()) return "stop_sequence";
    return has_calls ? "tool_use" : "end_turn";
}
Json stop_sequence(const Piece& piece) {
    return piece.matched_string.empty() ? Json() : Json(piece.matched_string);
}

// An empty block of the kind that the event belongs to.
Json new_block(const Event& event) {
    switch (event.kind) {
        case Kind::kContent:
            return Json::object().set("type", "text").set("text", "");
        case Kind::kReasoning:
            return Json::object().set("type", "thinking").set("thinking", "").set("signature", "");
        case Kind::kToolStart:
        case Kind::kToolArguments:
            break;
    }
    return Json::object()
        .set("type", "tool_use")
        .set("id", "toolu_" + api::random_hex(24))
        .set("name", event.text)
        .set("input", Json::object());
}

Json delta_json(const Event& event) {
    const auto delta = [&](const char* type, const char* member) {
        return Json::object().set("type", type).set(member, event.text);
    };
    if (event.kind == Kind::kContent) return delta("text_delta", "text");
    if (event.kind == Kind::kReasoning) return delta("thinking_delta", "thinking");
    return delta("input_json_delta", "partial_json");
}

std::string sse(const char* type, Json json) {
    Json event = Json::object().set("type", type);
    for (auto& [name, value] : json.as_object()) event.set(name, std::move(value));
    return fmt::format("event: {}\ndata: {}\n\n", type, event.dump());
}

class MessagesReply final : public api::ReplyFormat {
  public:
    explicit MessagesReply(std::string model)
        : id_("msg_" + api::random_hex(24)), model_(std::move(model)) {}

    Body error(const ApiError& error) const override { return error_body(error); }
    int status(const ApiError& error) const override { return status_of(error); }

    Body whole(const std::vector<Piece>& choices, const Usage& usage) const override {
        const Piece& piece = choices.at(0);
        Json content = Json::array();
        std::string arguments;
        const auto end_call = [&] {
            auto input = Json::parse(std::exchange(arguments, {}));
            if (input && input->is_object()) content.as_array().back().set("input", *input);
        };
        bool has_calls = false;
        for (const Event& event : piece.events) {
            if (event.kind == Kind::kToolArguments) {
                arguments += event.text;
                continue;
            }
            if (!arguments.empty()) end_call();
            has_calls |= event.kind == Kind::kToolStart;
            Json block = new_block(event);
            if (event.kind == Kind::kContent) block.set("text", event.text);
            if (event.kind == Kind::kReasoning) block.set("thinking", event.text);
            content.push_back(std::move(block));
        }
        if (!arguments.empty()) end_call();
        Json message = message_json(std::move(content), usage);
        message.set("stop_reason", stop_reason(piece, has_calls))
            .set("stop_sequence", stop_sequence(piece));
        return {kJson, message.dump()};
    }

    std::string stream_piece(const Piece& piece, const Usage& usage) override {
        std::string out;
        if (!std::exchange(begun_, true)) {
            Json message = message_json(Json::array(), usage);
            out += sse("message_start", Json::object().set("message", std::move(message)));
            out += sse("ping", Json::object());
        }
        for (const Event& event : piece.events) add_event(event, out);
        if (piece.finish == FinishReason::kNone) return out;
        end_block(out);
        Json delta = Json::object()
                         .set("stop_reason", stop_reason(piece, has_calls_))
                         .set("stop_sequence", stop_sequence(piece));
        return out +
               sse("message_delta",
                   Json::object().set("delta", std::move(delta)).set("usage", usage_json(usage)));
    }
    std::string stream_end(const Usage&) override { return sse("message_stop", Json::object()); }
    std::string stream_error(const ApiError& error) override {
        return sse("error", error_json(error));
    }

  private:
    Json message_json(Json content, const Usage& usage) const {
        return Json::object()
            .set("id", id_)
            .set("type", "message")
            .set("role", "assistant")
            .set("model", model_)
            .set("content", std::move(content))
            .set("stop_reason", Json())
            .set("stop_sequence", Json())
            .set("usage", usage_json(usage));
    }

    void add_event(const Event& event, std::string& out) {
        const bool goes_on = open_ && event.kind != Kind::kToolStart &&
                             (event.kind == *open_ || event.kind == Kind::kToolArguments);
        if (!goes_on) {
            end_block(out);
            open_ = event.kind;
            has_calls_ |= event.kind == Kind::kToolStart;
            out += sse("content_block_start",
                       Json::object().set("index", index_).set("content_block", new_block(event)));
        }
        if (event.kind == Kind::kToolStart) return;
        out += sse("content_block_delta",
                   Json::object().set("index", index_).set("delta", delta_json(event)));
    }
    void end_block(std::string& out) {
        if (!open_) return;
        out += sse("content_block_stop", Json::object().set("index", index_++));
        open_.reset();
    }

    const std::string id_, model_;
    bool begun_ = false, has_calls_ = false;
    std::optional<Kind> open_;  // the kind of the block that is open
    int index_ = 0;             // of that, or of the next
};

}  // namespace

Body error_body(const ApiError& error) { return {kJson, error_json(error).dump()}; }

int status_of(const ApiError& error) { return error.status == 503 ? 529 : error.status; }

std::unique_ptr<api::ReplyFormat> messages_reply(std::string model) {
    return std::make_unique<MessagesReply>(std::move(model));
}

}  // namespace aerie::anthropic
