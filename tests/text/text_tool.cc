// The tokenizer and the chat templates behind a pipe: one JSON request a line, one JSON reply a
// line. For comparing with Python; not part of aerie.
//   {"op": "load", "model_dir": …}                          -> {}
//   {"op": "encode", "hex": …}                              -> {"ids": […]}
//   {"op": "encode_ordinary", "hex": …}                     -> {"ids": […]}
//   {"op": "decode", "ids": […], "skip_special": bool}      -> {"text": …, "pushed": …}
//   {"op": "render", "template": …, "variables": {…}}       -> {"text": …}
// A failure is {"error": …}.
#include <iostream>

#include "template/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace aerie {
namespace {

std::string from_hex(std::string_view hex) {
    std::string bytes;
    const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
    for (size_t i = 0; i + 1 < hex.size(); i += 2) {
        bytes += static_cast<char>(digit(hex[i]) << 4 | digit(hex[i + 1]));
    }
    return bytes;
}

Json ids_reply(const std::vector<int32_t>& ids) {
    Json list = Json::array();
    for (int32_t id : ids) list.push_back(Json(int64_t{id}));
    return Json::object().set("ids", std::move(list));
}

Json error_reply(const std::string& message) { return Json::object().set("error", message); }

Json decode(const Tokenizer& tokenizer, const Json& request) {
    std::vector<int32_t> ids;
    for (const Json& id : request["ids"].as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
    const bool skip_special = request["skip_special"] == Json(true);
    IncrementalDecoder decoder(tokenizer, skip_special);
    std::string pushed;
    for (int32_t id : ids) pushed += decoder.push(id);
    pushed += decoder.finish();
    return Json::object().set("text", tokenizer.decode(ids, skip_special)).set("pushed", pushed);
}

Json render(const Json& request) {
    auto compiled = ChatTemplate::compile(request["template"].as_string());
    if (!compiled) return error_reply(compiled.message());
    auto text = compiled->render(request["variables"]);
    return text ? Json::object().set("text", *text) : error_reply(text.message());
}

Json reply_to(const Json& request, std::unique_ptr<Tokenizer>& tokenizer) {
    const std::string op = request["op"].as_string();
    if (op == "load") {
        auto loaded = Tokenizer::load(request["model_dir"].as_string());
        if (!loaded) return error_reply(loaded.message());
        tokenizer = *std::move(loaded);
        return Json::object();
    }
    if (op == "render") return render(request);
    if (op == "encode") return ids_reply(tokenizer->encode(from_hex(request["hex"].as_string())));
    if (op == "encode_ordinary") {
        return ids_reply(tokenizer->encode_ordinary(from_hex(request["hex"].as_string())));
    }
    if (op == "decode") return decode(*tokenizer, request);
    return error_reply("unknown op " + op);
}

}  // namespace
}  // namespace aerie

int main() {
    std::unique_ptr<aerie::Tokenizer> tokenizer;
    for (std::string line; std::getline(std::cin, line);) {
        auto request = aerie::Json::parse(line);
        if (!request) {
            std::cerr << request.message() << "\n";
            return 2;
        }
        std::cout << aerie::reply_to(*request, tokenizer).dump() << std::endl;
    }
}
