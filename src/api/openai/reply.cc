#include "api/openai/reply.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "api/ids.h"
#include "api/openai/logprobs.h"
#include "base/json.h"

namespace aerie::openai {
namespace {

using api::ApiError;
using api::Body;
using api::Piece;
using api::Usage;
using parse::Event;

constexpr const char* kJson = "application/json";

struct ErrorNames {
    const char* openai;
    const char* sglang;
};

ErrorNames names_of(int status) {
    switch (status) {
        case 401:
            return {"invalid_request_error", "AuthenticationError"};
        case 403:
            return {"invalid_request_error", "PermissionDeniedError"};
        case 404:
            return {"invalid_request_error", "NotFoundError"};
        case 429:
            return {"rate_limit_error", "RateLimitError"};
        case 503:
            return {"service_unavailable_error", "ServiceUnavailableError"};
        default:
            break;
    }
    if (status >= 500) return {"server_error", "InternalServerError"};
    return {"invalid_request_error", "BadRequestError"};
}

Json error_json(const ApiError& error) {
    const ErrorNames names = names_of(error.status);
    const auto or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
    return Json::object()
        .set("error", Json::object()
                          .set("message", error.message)
                          .set("type", names.openai)
                          .set("param", or_null(error.param))
                          .set("code", or_null(error.code)))
        .set("object", "error")
        .set("message", error.message)
        .set("type", names.sglang)
        .set("param", or_null(error.param))
        .set("code", error.status);
}

Json usage_json(const Usage& usage) {
    return Json::object()
        .set("prompt_tokens", usage.prompt_tokens)
        .set("completion_tokens", usage.completion_tokens)
        .set("total_tokens", usage.prompt_tokens + usage.completion_tokens)
        .set("prompt_tokens_details", Json::object().set("cached_tokens", usage.cached_tokens))
        .set("completion_tokens_details",
             Json::object().set("reasoning_tokens", usage.reasoning_tokens));
}

Json finish_json(FinishReason finish, bool has_calls) {
    switch (finish) {
        case FinishReason::kNone:
            return {};
        case FinishReason::kStop:
            return has_calls ? "tool_calls" : "stop";
        case FinishReason::kLength:
            return "length";
        case FinishReason::kAbort:
            return "abort";
    }
    return {};
}

Json matched_json(const Piece& piece) {
    if (!piece.matched_string.empty()) return piece.matched_string;
    if (piece.matched_token >= 0) return piece.matched_token;
    return {};
}

Json ids_json(const std::vector<int32_t>& ids) {
    Json list = Json::array();
    for (const int32_t id : ids) list.push_back(id);
    return list;
}

Json hashes_json(const std::vector<uint64_t>& hashes) {
    Json list = Json::array();
    for (const uint64_t hash : hashes) list.push_back(fmt::format("{:016x}", hash));
    return list;
}

bool has_calls(const Piece& piece) {
    return std::any_of(piece.events.begin(), piece.events.end(),
                       [](const Event& event) { return event.kind == Event::Kind::kToolStart; });
}

std::string sse(const Json& json) { return "data: " + json.dump() + "\n\n"; }
constexpr const char* kDone = "data: [DONE]\n\n";

// What chat and completions have in common. A choice of a stream is: its head, a chunk for each
// event, and a chunk with the finish reason.
class OpenAiReply : public api::ReplyFormat {
  public:
    explicit OpenAiReply(ReplyHeader header) : header_(std::move(header)) {}

    Body error(const ApiError& error) const override { return error_body(error); }
    std::string stream_error(const ApiError& error) override {
        return sse(error_json(error)) + kDone;
    }

    Body whole(const std::vector<Piece>& choices, const Usage& usage) const override {
        Json list = Json::array();
        for (const Piece& piece : choices) {
            Json choice = whole_choice(piece);
            size_t offset = 0;
            end_choice(piece, has_calls(piece), offset, choice);
            list.push_back(std::move(choice));
        }
        Json reply = frame(whole_object(), std::move(list));
        reply.set("usage", usage_json(usage));
        add_to_whole(reply);
        return {kJson, reply.dump()};
    }

    std::string stream_piece(const Piece& piece, const Usage& usage) override {
        std::string out;
        const auto index = static_cast<size_t>(piece.choice);
        if (index >= streams_.size()) streams_.resize(index + 1);
        ChoiceStream& stream = streams_[index];
        if (!std::exchange(stream.begun, true)) out += begin_choice(piece.choice, usage);
        stream.has_calls |= has_calls(piece);
        for (size_t i = 0; i < piece.events.size(); ++i) {
            Json choice = event_choice(piece.choice, piece.events[i]);
            if (i == 0) {  // what belongs to the tokens of all the piece
                finish_choice(Piece{}, false, choice);
                add_tokens(piece, stream.offset, choice);
            }
            out += chunk(std::move(choice), usage);
        }
        if (piece.finish != FinishReason::kNone) {
            Piece rest = piece;
            if (!piece.events.empty()) {
                rest.token_ids.clear();
                rest.logits_hashes.clear();
                rest.logprobs.clear();
                rest.prompt_logprobs.clear();
            }
            Json choice = last_choice(piece.choice);
            end_choice(rest, stream.has_calls, stream.offset, choice);
            out += chunk(std::move(choice), usage);
        }
        return out;
    }

    std::string stream_end(const Usage& usage) override {
        std::string out;
        if (header_.include_usage) {
            out += sse(frame(chunk_object(), Json::array()).set("usage", usage_json(usage)));
        }
        return out + kDone;
    }

  protected:
    virtual const char* whole_object() const = 0;
    virtual const char* chunk_object() const = 0;
    virtual Json whole_choice(const Piece& piece) const = 0;
    virtual void add_to_whole(Json&) const {}
    virtual std::string begin_choice(int choice, const Usage& usage) = 0;
    virtual Json event_choice(int choice, const Event& event) const = 0;
    virtual Json last_choice(int choice) const = 0;
    virtual Json logprobs_json(const std::vector<api::TokenLogprob>& tokens,
                               size_t& offset) const = 0;

    Json frame(const char* object, Json choices) const {
        return Json::object()
            .set("id", header_.id)
            .set("object", object)
            .set("created", header_.created)
            .set("model", header_.model)
            .set("choices", std::move(choices));
    }

    // `choice` gets the members that come after its content, all null before its end.
    std::string chunk(Json choice, const Usage& usage) const {
        if (!choice.find("finish_reason")) finish_choice(Piece{}, false, choice);
        Json list = Json::array();
        list.push_back(std::move(choice));
        Json json = frame(chunk_object(), std::move(list));
        if (header_.continuous_usage_stats) json.set("usage", usage_json(usage));
        return sse(json);
    }

    static void finish_choice(const Piece& piece, bool has_calls, Json& choice) {
        choice.set("logprobs", Json())
            .set("finish_reason", finish_json(piece.finish, has_calls))
            .set("matched_stop", matched_json(piece));
    }

    // After finish_choice(). offset: of the first token in the choice's text.
    void add_tokens(const Piece& piece, size_t& offset, Json& choice) const {
        if (header_.logprobs && !piece.logprobs.empty()) {
            std::vector<api::TokenLogprob> tokens = piece.prompt_logprobs;
            find_in_echo(piece.choice, tokens);
            tokens.insert(tokens.end(), piece.logprobs.begin(), piece.logprobs.end());
            choice.set("logprobs", logprobs_json(tokens, offset));
        }
        if (header_.return_token_ids) choice.set("token_ids", ids_json(piece.token_ids));
        if (header_.logits_hash) choice.set("logits_hashes", hashes_json(piece.logits_hashes));
    }

    // Special tokens that the tokenizer has put before the prompt are not part of its text.
    void find_in_echo(int choice, std::vector<api::TokenLogprob>& tokens) const {
        if (header_.echo.empty()) return;
        std::string_view left = header_.echo[static_cast<size_t>(choice / header_.n)];
        for (api::TokenLogprob& token : tokens) {
            token.shown = left.substr(0, token.text.size()) == token.text;
            if (token.shown) left.remove_prefix(token.text.size());
        }
    }

    void end_choice(const Piece& piece, bool has_calls, size_t& offset, Json& choice) const {
        finish_choice(piece, has_calls, choice);
        add_tokens(piece, offset, choice);
    }

    const std::vector<int32_t>* prompt_ids(int choice) const {
        const size_t prompt = static_cast<size_t>(choice / header_.n);
        return header_.prompt_token_ids.empty() ? nullptr : &header_.prompt_token_ids[prompt];
    }

    ReplyHeader header_;

  private:
    struct ChoiceStream {
        bool begun = false, has_calls = false;
        size_t offset = 0;  // of the next token in its text, in characters
    };
    std::vector<ChoiceStream> streams_;  // [choice]
};

class ChatReply final : public OpenAiReply {
  public:
    using OpenAiReply::OpenAiReply;

  private:
    const char* whole_object() const override { return "chat.completion"; }
    const char* chunk_object() const override { return "chat.completion.chunk"; }

    // The content is null where there is none beside reasoning or calls.
    Json whole_choice(const Piece& piece) const override {
        Json calls = Json::array();
        for (const Event& event : piece.events) {
            if (event.kind == Event::Kind::kToolStart) {
                calls.push_back(call_json(event.text, {}).set("index", event.call));
            } else if (event.kind == Event::Kind::kToolArguments) {
                Json& function = *calls.as_array().back().find("function");
                function.set("arguments", function["arguments"].as_string() + event.text);
            }
        }
        std::string content = parse::text_of(piece.events, Event::Kind::kContent);
        std::string reasoning = parse::text_of(piece.events, Event::Kind::kReasoning);
        const bool has_other = !reasoning.empty() || !calls.as_array().empty();
        Json message = Json::object().set("role", "assistant");
        message.set("content", content.empty() && has_other ? Json() : Json(std::move(content)))
            .set("reasoning_content", reasoning.empty() ? Json() : Json(std::move(reasoning)))
            .set("tool_calls", calls.as_array().empty() ? Json() : std::move(calls));
        return Json::object().set("index", piece.choice).set("message", std::move(message));
    }
    static Json call_json(const std::string& name, std::string arguments) {
        return Json::object()
            .set("id", "call_" + api::random_hex(24))
            .set("type", "function")
            .set("function",
                 Json::object().set("name", name).set("arguments", std::move(arguments)));
    }
    void add_to_whole(Json& reply) const override {
        if (const auto* ids = prompt_ids(0)) reply.set("prompt_token_ids", ids_json(*ids));
    }

    Json delta(int choice, Json content) const {
        return Json::object().set("index", choice).set("delta", std::move(content));
    }
    std::string begin_choice(int choice, const Usage& usage) override {
        Json json = delta(choice, Json::object().set("role", "assistant").set("content", ""));
        std::string out = chunk(std::move(json), usage);
        const auto* ids = choice == 0 ? prompt_ids(0) : nullptr;
        if (!ids) return out;
        out.resize(out.size() - 3);  // "}\n\n"
        return out + ",\"prompt_token_ids\":" + ids_json(*ids).dump() + "}\n\n";
    }
    Json event_choice(int choice, const Event& event) const override {
        if (event.kind == Event::Kind::kContent) {
            return delta(choice, Json::object().set("content", event.text));
        }
        if (event.kind == Event::Kind::kReasoning) {
            return delta(choice, Json::object().set("reasoning_content", event.text));
        }
        Json call =
            event.kind == Event::Kind::kToolStart
                ? call_json(event.text, {})
                : Json::object().set("function", Json::object().set("arguments", event.text));
        Json calls = Json::array();
        calls.push_back(call.set("index", event.call));
        return delta(choice, Json::object().set("tool_calls", std::move(calls)));
    }
    Json last_choice(int choice) const override { return delta(choice, Json::object()); }
    Json logprobs_json(const std::vector<api::TokenLogprob>& tokens, size_t&) const override {
        return chat_logprobs(tokens);
    }
};

class CompletionReply final : public OpenAiReply {
  public:
    using OpenAiReply::OpenAiReply;

  private:
    const char* whole_object() const override { return "text_completion"; }
    const char* chunk_object() const override { return "text_completion"; }

    std::string echo(int choice) const {
        return header_.echo.empty() ? std::string()
                                    : header_.echo[static_cast<size_t>(choice / header_.n)];
    }
    Json text_json(int choice, std::string text) const {
        return Json::object().set("index", choice).set("text", std::move(text));
    }

    Json whole_choice(const Piece& piece) const override {
        Json choice = text_json(
            piece.choice, echo(piece.choice) + parse::text_of(piece.events, Event::Kind::kContent));
        if (const auto* ids = prompt_ids(piece.choice)) {
            choice.set("prompt_token_ids", ids_json(*ids));
        }
        return choice;
    }
    std::string begin_choice(int choice, const Usage& usage) override {
        const auto* ids = prompt_ids(choice);
        if (header_.echo.empty() && !ids) return {};
        Json json = text_json(choice, echo(choice));
        if (ids) json.set("prompt_token_ids", ids_json(*ids));
        return chunk(std::move(json), usage);
    }
    Json event_choice(int choice, const Event& event) const override {
        return text_json(choice, event.text);
    }
    Json last_choice(int choice) const override { return text_json(choice, ""); }
    Json logprobs_json(const std::vector<api::TokenLogprob>& tokens,
                       size_t& offset) const override {
        return completion_logprobs(tokens, offset);
    }
};

}  // namespace

Body error_body(const ApiError& error) { return {kJson, error_json(error).dump()}; }

std::unique_ptr<api::ReplyFormat> chat_reply(ReplyHeader header) {
    return std::make_unique<ChatReply>(std::move(header));
}
std::unique_ptr<api::ReplyFormat> completion_reply(ReplyHeader header) {
    return std::make_unique<CompletionReply>(std::move(header));
}

}  // namespace aerie::openai
