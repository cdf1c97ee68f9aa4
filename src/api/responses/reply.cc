#include "api/responses/reply.h"

#include <fmt/core.h>

#include <utility>
#include <vector>

#include "api/ids.h"
#include "api/openai/reply.h"

namespace aerie::responses {
namespace {

using api::ApiError;
using api::Body;
using api::Piece;
using api::Usage;
using parse::Event;
using Kind = parse::Event::Kind;

Json usage_json(const Usage& usage) {
    return Json::object()
        .set("input_tokens", usage.prompt_tokens)
        .set("input_tokens_details", Json::object().set("cached_tokens", usage.cached_tokens))
        .set("output_tokens", usage.completion_tokens)
        .set("output_tokens_details",
             Json::object().set("reasoning_tokens", usage.reasoning_tokens))
        .set("total_tokens", usage.prompt_tokens + usage.completion_tokens);
}

// One item of the output while it grows.
struct Item {
    Kind kind;  // kContent, kReasoning or kToolStart
    std::string id;
    std::string text;  // or the arguments
    std::string call_id, name;

    static Item begin(const Event& event) {
        const char* prefix = event.kind == Kind::kContent     ? "msg_"
                             : event.kind == Kind::kReasoning ? "rs_"
                                                              : "fc_";
        Item item{.kind = event.kind,
                  .id = prefix + api::random_hex(32),
                  .text = {},
                  .call_id = {},
                  .name = {}};
        if (event.kind == Kind::kToolStart) {
            item.call_id = "call_" + api::random_hex(24);
            item.name = event.text;
        } else {
            item.text = event.text;
        }
        return item;
    }
    bool takes(const Event& event) const {
        return event.kind == kind ? kind != Kind::kToolStart : event.kind == Kind::kToolArguments;
    }
    Json part() const {
        if (kind == Kind::kReasoning) {
            return Json::object().set("type", "reasoning_text").set("text", text);
        }
        return Json::object()
            .set("type", "output_text")
            .set("text", text)
            .set("annotations", Json::array())
            .set("logprobs", Json::array());
    }
    // begun: as it is told of first, without content.
    Json json(bool begun = false) const {
        Json item = Json::object().set("id", id);
        const char* status = begun ? "in_progress" : "completed";
        if (kind == Kind::kToolStart) {
            return item.set("type", "function_call")
                .set("status", status)
                .set("call_id", call_id)
                .set("name", name)
                .set("arguments", begun ? "" : text);
        }
        Json content = Json::array();
        if (!begun) content.push_back(part());
        if (kind == Kind::kReasoning) {
            return item.set("type", "reasoning")
                .set("status", status)
                .set("summary", Json::array())
                .set("content", std::move(content));
        }
        return item.set("type", "message")
            .set("status", status)
            .set("role", "assistant")
            .set("content", std::move(content));
    }
};

class ResponsesReply final : public api::ReplyFormat {
  public:
    explicit ResponsesReply(ReplyHeader header)
        : id_("resp_" + api::random_hex(32)), header_(std::move(header)) {}

    Body error(const ApiError& error) const override { return openai::error_body(error); }

    Body whole(const std::vector<Piece>& choices, const Usage& usage) const override {
        const Piece& piece = choices.at(0);
        std::vector<Item> items;
        for (const Event& event : piece.events) {
            if (!items.empty() && items.back().takes(event)) {
                items.back().text += event.text;
            } else {
                items.push_back(Item::begin(event));
            }
        }
        remember(items);
        return {"application/json", response_json(status_of(piece.finish), items, &usage).dump()};
    }

    std::string stream_piece(const Piece& piece, const Usage& usage) override {
        std::string out;
        if (!std::exchange(begun_, true)) {
            for (const char* type : {"response.created", "response.in_progress"}) {
                add(type, Json::object().set("response", response_json("in_progress", {}, nullptr)),
                    out);
            }
        }
        for (const Event& event : piece.events) add_event(event, out);
        if (piece.finish == FinishReason::kNone) return out;
        end_item(out);
        remember(items_);
        const char* status = status_of(piece.finish);
        add(fmt::format("response.{}", status),
            Json::object().set("response", response_json(status, items_, &usage)), out);
        return out;
    }
    std::string stream_end(const Usage&) override { return {}; }
    std::string stream_error(const ApiError& error) override {
        std::string out;
        Json code = error.code.empty() ? Json("server_error") : Json(error.code);
        add("error",
            Json::object()
                .set("code", std::move(code))
                .set("message", error.message)
                .set("param", error.param.empty() ? Json() : Json(error.param)),
            out);
        return out;
    }

  private:
    static const char* status_of(FinishReason finish) {
        return finish == FinishReason::kStop ? "completed" : "incomplete";
    }

    Json response_json(std::string_view status, const std::vector<Item>& items,
                       const Usage* usage) const {
        Json output = Json::array();
        for (const Item& item : items) output.push_back(item.json());
        const Json& repeated = header_.given.repeated;
        const auto given = [&](const char* name, Json otherwise) {
            const Json& value = repeated[name];
            return value.is_null() ? std::move(otherwise) : value;
        };
        const bool incomplete = status == "incomplete";
        Json details = Json::object().set("reason", "max_output_tokens");
        Json text = Json::object().set("format", Json::object().set("type", "text"));
        return Json::object()
            .set("id", id_)
            .set("object", "response")
            .set("created_at", header_.created)
            .set("status", status)
            .set("error", Json())
            .set("incomplete_details", incomplete ? std::move(details) : Json())
            .set("instructions", given("instructions", Json()))
            .set("max_output_tokens", given("max_output_tokens", Json()))
            .set("model", header_.model)
            .set("output", std::move(output))
            .set("parallel_tool_calls", given("parallel_tool_calls", true))
            .set("previous_response_id", given("previous_response_id", Json()))
            .set("reasoning", given("reasoning", Json::object()))
            .set("store", header_.given.store)
            .set("temperature", header_.temperature)
            .set("text", std::move(text))
            .set("tool_choice", given("tool_choice", "auto"))
            .set("tools", given("tools", Json::array()))
            .set("top_p", header_.top_p)
            .set("truncation", "disabled")
            .set("usage", usage ? usage_json(*usage) : Json())
            .set("metadata", given("metadata", Json::object()));
    }

    // The answer as a message of the conversation.
    void remember(const std::vector<Item>& items) const {
        if (!header_.given.store) return;
        Json calls = Json::array();
        std::string content;
        for (const Item& item : items) {
            if (item.kind == Kind::kContent) content += item.text;
            if (item.kind != Kind::kToolStart) continue;
            Json function = Json::object().set("name", item.name).set("arguments", item.text);
            calls.push_back(Json::object()
                                .set("id", item.call_id)
                                .set("type", "function")
                                .set("function", std::move(function)));
        }
        Json answer = Json::object().set("role", "assistant").set("content", std::move(content));
        if (!calls.as_array().empty()) answer.set("tool_calls", std::move(calls));
        Json messages = header_.given.messages;
        messages.push_back(std::move(answer));
        header_.conversations->put(id_, messages);
    }

    void add(std::string_view type, Json members, std::string& out) {
        Json event = Json::object().set("type", type).set("sequence_number", num_events_++);
        for (auto& [name, value] : members.as_object()) event.set(name, std::move(value));
        out += fmt::format("event: {}\ndata: {}\n\n", type, event.dump());
    }

    // Members that all events of the newest item have.
    Json of_item() const {
        return Json::object()
            .set("item_id", items_.back().id)
            .set("output_index", static_cast<int64_t>(items_.size()) - 1);
    }
    void add_event(const Event& event, std::string& out) {
        if (!open_ || !items_.back().takes(event)) {
            end_item(out);
            begin_item(event, out);
            if (event.kind == Kind::kToolStart) return;
        } else {
            items_.back().text += event.text;
        }
        Json members = of_item();
        if (items_.back().kind != Kind::kToolStart) members.set("content_index", 0);
        members.set("delta", event.text);
        if (event.kind == Kind::kContent) members.set("logprobs", Json::array());
        add(delta_name() + ".delta", std::move(members), out);
    }
    std::string delta_name() const {
        switch (items_.back().kind) {
            case Kind::kContent:
                return "response.output_text";
            case Kind::kReasoning:
                return "response.reasoning_text";
            default:
                return "response.function_call_arguments";
        }
    }
    void begin_item(const Event& event, std::string& out) {
        items_.push_back(Item::begin(event));
        open_ = true;
        Json members = Json::object()
                           .set("output_index", static_cast<int64_t>(items_.size()) - 1)
                           .set("item", items_.back().json(/*begun=*/true));
        add("response.output_item.added", std::move(members), out);
        if (event.kind != Kind::kContent) return;
        Item empty = items_.back();
        empty.text.clear();
        add("response.content_part.added",
            of_item().set("content_index", 0).set("part", empty.part()), out);
    }
    void end_item(std::string& out) {
        if (!std::exchange(open_, false)) return;
        const Item& item = items_.back();
        Json members = of_item();
        if (item.kind == Kind::kToolStart) {
            members.set("name", item.name).set("arguments", item.text);
        } else {
            members.set("content_index", 0).set("text", item.text);
        }
        if (item.kind == Kind::kContent) members.set("logprobs", Json::array());
        add(delta_name() + ".done", std::move(members), out);
        if (item.kind == Kind::kContent) {
            add("response.content_part.done",
                of_item().set("content_index", 0).set("part", item.part()), out);
        }
        Json done = Json::object()
                        .set("output_index", static_cast<int64_t>(items_.size()) - 1)
                        .set("item", item.json());
        add("response.output_item.done", std::move(done), out);
    }

    const std::string id_;
    const ReplyHeader header_;
    std::vector<Item> items_;  // of a stream
    bool open_ = false;        // the last of them
    bool begun_ = false;
    int64_t num_events_ = 0;
};

}  // namespace

std::unique_ptr<api::ReplyFormat> responses_reply(ReplyHeader header) {
    return std::make_unique<ResponsesReply>(std::move(header));
}

}  // namespace aerie::responses
