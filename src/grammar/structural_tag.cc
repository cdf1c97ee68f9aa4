#include "grammar/structural_tag.h"

#include <utility>

#include "base/json.h"

namespace aerie::grammar {
namespace {

void name_ids(Json& value, const Tokenizer& tokenizer) {
    if (value.is_array()) {
        for (Json& item : value.as_array()) name_ids(item, tokenizer);
    } else if (value.is_object()) {
        if (value["type"] == Json("json_schema")) return;  // a schema's members are its own
        if (value["type"] == Json("token") && value["token"].is_string()) {
            const std::string text = value["token"].as_string();
            const auto id = tokenizer.token_id(text);
            const bool is_marker = id && tokenizer.is_added(*id) && !tokenizer.is_special(*id);
            value = is_marker ? Json::object().set("type", "token").set("token", *id)
                              : Json::object().set("type", "const_string").set("value", text);
            return;
        }
        for (auto& [name, member] : value.as_object()) name_ids(member, tokenizer);
    }
}

Result<Json> read(const std::string& text) {
    auto json = Json::parse(text);
    if (!json) return json.error();
    if (!json->is_object()) return error("it must be a JSON object, got {}", json->type_name());
    return json;
}

}  // namespace

Result<std::string> without_old_form(const std::string& text) {
    auto json = read(text);
    if (!json) return json.error();
    if (!json->find("structures")) return text;
    const Json& structures = (*json)["structures"];
    if (!structures.is_array()) return error("structures must be a list");
    Json tags = Json::array();
    for (const Json& structure : structures.as_array()) {
        if (!structure["begin"].is_string() || !structure["end"].is_string()) {
            return error("each of structures must have begin, schema and end");
        }
        Json content = Json::object().set("type", "json_schema");
        content.set("json_schema", structure["schema"]);
        tags.push_back(Json::object()
                           .set("type", "tag")
                           .set("begin", structure["begin"])
                           .set("content", std::move(content))
                           .set("end", structure["end"]));
    }
    Json format = Json::object().set("type", "triggered_tags").set("triggers", (*json)["triggers"]);
    format.set("tags", std::move(tags));
    return Json::object().set("type", "structural_tag").set("format", std::move(format)).dump();
}

Result<std::string> with_token_ids(const std::string& text, const Tokenizer& tokenizer) {
    auto json = read(text);
    if (!json) return json.error();
    name_ids(*json, tokenizer);
    return json->dump();
}

}  // namespace aerie::grammar
