#include "api/native/reply.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "api/openai/reply.h"
#include "base/json.h"

namespace aerie::native {
namespace {

using api::ApiError;
using api::Body;
using api::Piece;
using api::Usage;

Json finish_json(const Piece& piece) {
    switch (piece.finish) {
        case FinishReason::kNone:
            break;
        case FinishReason::kStop:
            return Json::object()
                .set("type", "stop")
                .set("matched", !piece.matched_string.empty() ? Json(piece.matched_string)
                                : piece.matched_token >= 0    ? Json(piece.matched_token)
                                                              : Json());
        case FinishReason::kLength:
            return Json::object().set("type", "length").set("length", piece.num_tokens);
        case FinishReason::kAbort:
            return Json::object()
                .set("type", "abort")
                .set("message", "the request was aborted")
                .set("status_code", Json());
    }
    return {};
}

Json logprob_json(Json logprob, int32_t id, const std::string& text) {
    Json entry = Json::array();
    entry.push_back(std::move(logprob));
    entry.push_back(id);
    entry.push_back(text);
    return entry;
}

Json number(float logprob) { return static_cast<double>(std::max(logprob, -9999.0f)); }

Json entries_json(const std::vector<api::TokenLogprob::Entry>& entries) {
    Json list = Json::array();
    for (const auto& entry : entries) {
        list.push_back(logprob_json(number(entry.logprob), entry.id, entry.text));
    }
    return list;
}

class GenerateReply final : public api::ReplyFormat {
  public:
    explicit GenerateReply(ReplyHeader header) : header_(std::move(header)) {}

    Body error(const ApiError& error) const override { return openai::error_body(error); }

    Body whole(const std::vector<Piece>& choices, const Usage&) const override {
        Json list = Json::array();
        for (const Piece& piece : choices) list.push_back(choice_json(piece, true));
        const bool alone = !header_.is_batch && choices.size() == 1;
        return {"application/json", alone ? list.as_array()[0].dump() : list.dump()};
    }

    std::string stream_piece(const Piece& piece, const Usage&) override {
        const auto index = static_cast<size_t>(piece.choice);
        if (index >= so_far_.size()) so_far_.resize(index + 1);
        Piece& all = so_far_[index];
        for (const parse::Event& event : piece.events) parse::append(all.events, event);
        std::copy(piece.token_ids.begin(), piece.token_ids.end(),
                  std::back_inserter(all.token_ids));
        std::copy(piece.logprobs.begin(), piece.logprobs.end(), std::back_inserter(all.logprobs));
        std::copy(piece.prompt_logprobs.begin(), piece.prompt_logprobs.end(),
                  std::back_inserter(all.prompt_logprobs));
        all.choice = piece.choice;
        all.finish = piece.finish;
        all.matched_string = piece.matched_string;
        all.matched_token = piece.matched_token;
        all.num_tokens = piece.num_tokens;
        all.num_cached = piece.num_cached;
        all.num_decode_steps = piece.num_decode_steps;
        all.dp_rank = piece.dp_rank;
        // What is told of the prompt may be long: with the first tokens, and with the last.
        const bool tells_prompt = !piece.prompt_logprobs.empty() || piece.finish != FinishReason::kNone;
        return "data: " + choice_json(all, tells_prompt).set("index", piece.choice).dump() + "\n\n";
    }
    std::string stream_end(const Usage&) override { return "data: [DONE]\n\n"; }
    std::string stream_error(const ApiError& error) override {
        return "data: " + openai::error_body(error).text + "\n\ndata: [DONE]\n\n";
    }

  private:
    Json choice_json(const Piece& piece, bool tells_prompt) const {
        const auto prompt = static_cast<size_t>(piece.choice / header_.n);
        Json ids = Json::array();
        for (const int32_t id : piece.token_ids) ids.push_back(id);
        const bool several = header_.num_prompt_tokens.size() * static_cast<size_t>(header_.n) > 1;
        Json meta = Json::object();
        meta.set("id", several ? fmt::format("{}-{}", header_.id, piece.choice) : header_.id)
            .set("finish_reason", finish_json(piece))
            .set("prompt_tokens", header_.num_prompt_tokens[prompt])
            .set("completion_tokens", piece.num_tokens)
            .set("cached_tokens", piece.num_cached)
            .set("e2e_latency", seconds_since(header_.arrival))
            .set("dp_rank", piece.dp_rank);
        if (header_.drafts) {
            meta.set("spec_verify_ct", piece.num_decode_steps);
            if (piece.num_decode_steps > 0) {
                meta.set("spec_accept_length",
                         static_cast<double>(piece.num_tokens) / piece.num_decode_steps);
            }
        }
        if (header_.logprobs) {
            add_logprobs("input", tells_prompt ? piece.prompt_logprobs : kNone, meta);
            add_logprobs("output", piece.logprobs, meta);
        }
        return Json::object()
            .set("text", parse::text_of(piece.events, parse::Event::Kind::kContent))
            .set("output_ids", std::move(ids))
            .set("meta_info", std::move(meta));
    }
    // The members {which}_token_logprobs, {which}_top_logprobs and {which}_token_ids_logprobs.
    static void add_logprobs(const std::string& which, const std::vector<api::TokenLogprob>& of, Json& meta) {
        Json tokens = Json::array(), tops = Json::array(), asked = Json::array();
        for (const api::TokenLogprob& token : of) {
            tokens.push_back(logprob_json(token.predicted ? number(token.logprob) : Json(), token.id, token.text));
            tops.push_back(token.predicted ? entries_json(token.top) : Json());
            asked.push_back(token.predicted ? entries_json(token.asked) : Json());
        }
        meta.set(which + "_token_logprobs", std::move(tokens))
            .set(which + "_top_logprobs", std::move(tops))
            .set(which + "_token_ids_logprobs", std::move(asked));
    }

    static inline const std::vector<api::TokenLogprob> kNone;
    const ReplyHeader header_;
    std::vector<Piece> so_far_;  // [choice] of a stream
};

}  // namespace

std::unique_ptr<api::ReplyFormat> generate_reply(ReplyHeader header) {
    return std::make_unique<GenerateReply>(std::move(header));
}

}  // namespace aerie::native
