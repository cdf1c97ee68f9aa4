#include "api/openai/logprobs.h"

#include <algorithm>
#include <string>

namespace aerie::openai {
namespace {

Json number(float logprob) { return static_cast<double>(std::max(logprob, -9999.0f)); }

Json entry_json(const std::string& text, float logprob) {
    Json bytes = Json::array();
    for (const char byte : text)
        bytes.push_back(static_cast<int>(static_cast<unsigned char>(byte)));
    return Json::object()
        .set("token", text)
        .set("bytes", std::move(bytes))
        .set("logprob", number(logprob));
}

size_t num_characters(const std::string& text) {
    return static_cast<size_t>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

}  // namespace

Json chat_logprobs(const std::vector<api::TokenLogprob>& tokens) {
    Json content = Json::array();
    for (const api::TokenLogprob& token : tokens) {
        Json top = Json::array();
        for (const auto& entry : token.top) top.push_back(entry_json(entry.text, entry.logprob));
        content.push_back(
            entry_json(token.text, token.logprob).set("top_logprobs", std::move(top)));
    }
    return Json::object().set("content", std::move(content)).set("refusal", Json());
}

Json completion_logprobs(const std::vector<api::TokenLogprob>& tokens, size_t& offset) {
    Json texts = Json::array(), logprobs = Json::array(), tops = Json::array();
    Json offsets = Json::array();
    for (const api::TokenLogprob& token : tokens) {
        Json top = Json::object();
        for (const auto& entry : token.top) top.set(entry.text, number(entry.logprob));
        texts.push_back(token.text);
        logprobs.push_back(token.predicted ? number(token.logprob) : Json());
        tops.push_back(token.predicted ? std::move(top) : Json());
        offsets.push_back(static_cast<int64_t>(offset));
        if (token.shown) offset += num_characters(token.text);
    }
    return Json::object()
        .set("tokens", std::move(texts))
        .set("token_logprobs", std::move(logprobs))
        .set("top_logprobs", std::move(tops))
        .set("text_offset", std::move(offsets));
}

}  // namespace aerie::openai
