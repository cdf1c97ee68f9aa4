// What the server answers to, made from the table that routes requests.
#include <string>

#include "base/check.h"
#include "frontend/handlers.h"
#include "frontend/reply_schemas.h"
#include "frontend/routes.h"

namespace aerie::frontend {
namespace {

Json response_json(const char* description, const char* content_type, Json schema) {
    return Json::object()
        .set("description", description)
        .set("content",
             Json::object().set(content_type, Json::object().set("schema", std::move(schema))));
}

Json read_schema(const char* text) {
    auto schema = Json::parse(text);
    CHECK(schema.ok());
    return *std::move(schema);
}

Json error_json(const char* description) {
    return response_json(description, "application/json", read_schema(kErrorReply));
}

Json ok_json(const Route& route, const Json& body) {
    if (!route.reply) return Json::object().set("description", "The answer");
    Json ok = response_json("The answer", "application/json", read_schema(route.reply));
    if (body["properties"].find("stream")) {
        ok.find("content")->set("text/event-stream",
                                Json::object().set("schema", read_schema(kEventReply)));
    }
    return ok;
}

Json responses_json(const Route& route, const Json& body) {
    const bool is_post = std::string_view(route.method) == "POST";
    Json all = Json::object().set("200", ok_json(route, body));
    if (is_post) {
        all.set("400", error_json("A field is wrong: the message names it, its value and what was "
                                  "expected"))
            .set("413", error_json("The body is larger than the server reads"))
            .set("415", error_json("The content type is not JSON"));
    }
    if (route.auth != Auth::kOpen) all.set("401", error_json("The API key is missing or wrong"));
    if (std::string_view(route.path).ends_with('}') ||
        body["properties"].find("previous_response_id")) {
        all.set("404", error_json("There is none"));
    }
    if (std::string_view(route.path) == "/metrics") {
        all.set("404", error_json("The setting enable_metrics is false"));
    }
    all.set("408", error_json("The request did not come in time"));
    all.set("414", error_json("The URL is longer than the server reads"));
    all.set("431", error_json("The headers are larger or more than the server reads"));
    all.set("503",
            error_json("Not now: the server starts or stops, a host is down, or the queue is "
                       "full"));
    if (std::string_view(route.path).find("messages") != std::string_view::npos) {
        all.set("529", error_json("In the place of 503"));
    }
    return all;
}

// body: the schema of the request's; null where it has none.
Json operation_json(const Route& route, const Json& body) {
    Json operation = Json::object().set("summary", route.summary);
    if (route.auth == Auth::kOpen) operation.set("security", Json::array());
    if (std::string_view(route.path).ends_with("{id}")) {
        Json parameters = Json::array();
        parameters.push_back(Json::object()
                                 .set("name", "id")
                                 .set("in", "path")
                                 .set("required", true)
                                 .set("schema", Json::object().set("type", "string")));
        operation.set("parameters", std::move(parameters));
    }
    if (!body.is_null()) {
        Json content = Json::object().set("application/json", Json::object().set("schema", body));
        operation.set("requestBody",
                      Json::object().set("required", true).set("content", std::move(content)));
    }
    return operation.set("responses", responses_json(route, body));
}

std::string lower(std::string_view text) {
    std::string result(text);
    for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return result;
}

const char* name_of(Auth auth) {
    switch (auth) {
        case Auth::kOpen:
            return "open";
        case Auth::kNormal:
            return "api_key";
        case Auth::kAdmin:
            return "admin_api_key";
    }
    return "";
}

}  // namespace

void Handlers::openapi(HttpCall& call) {
    Json paths = Json::object();
    for (const Route& route : routes()) {
        if (!paths.find(route.path)) paths.set(route.path, Json::object());
        const auto found = body_schemas_.find(&route);
        paths.find(route.path)
            ->set(lower(route.method),
                  operation_json(route, found == body_schemas_.end() ? Json() : found->second));
    }
    Json bearer = Json::object().set("type", "http").set("scheme", "bearer");
    Json header = Json::object().set("type", "apiKey").set("in", "header").set("name", "x-api-key");
    Json schemes = Json::object().set("bearer", std::move(bearer)).set("key", std::move(header));
    Json security = Json::array();
    security.push_back(Json::object().set("bearer", Json::array()));
    security.push_back(Json::object().set("key", Json::array()));
    const Json& version = options_.server_info["version"];
    Json info = Json::object()
                    .set("title", "aerie")
                    .set("version", version.is_string() ? version : Json("0"));
    send_json(call,
              Json::object()
                  .set("openapi", "3.1.0")
                  .set("info", std::move(info))
                  .set("security", std::move(security))
                  .set("paths", std::move(paths))
                  .set("components", Json::object().set("securitySchemes", std::move(schemes))));
}

void Handlers::docs(HttpCall& call) {
    std::string page =
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>aerie</title>"
        "<style>body{font:15px sans-serif;margin:2em;max-width:60em}td{padding:.3em 1em .3em 0}"
        "</style><h1>aerie</h1><p>Also as <a href=\"/openapi.json\">openapi.json</a>.</p><table>";
    for (const Route& route : routes()) {
        page += fmt::format("<tr><td>{}</td><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
                            route.method, route.path, name_of(route.auth), route.summary);
    }
    call.answer.send(200, {"text/html; charset=utf-8", page + "</table></html>\n"});
}

}  // namespace aerie::frontend
