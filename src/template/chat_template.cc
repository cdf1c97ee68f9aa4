#include "template/chat_template.h"

#include <sys/stat.h>

#include "base/log.h"
#include "template/budget.h"
#include "template/interpreter.h"
#include "template/limits.h"
#include "template/syntax.h"

namespace aerie {
namespace {

Error to_error(const jinja::Failure& failure) {
    if (failure.raised) return Error{failure.message};
    if (failure.line == 0) return error("chat template: {}", failure.message);
    return error("chat template, line {}: {}", failure.line, failure.message);
}

bool exists(const std::string& path) {
    struct stat info;
    return ::stat(path.c_str(), &info) == 0;
}

// chat_template of a tokenizer_config.json.
Result<std::string> template_of_config(const std::string& path, const Json& value) {
    if (value.is_string()) return value.as_string();
    if (!value.is_array()) {
        return error("{}: chat_template: found {}, expected a text or a list", path,
                     value.type_name());
    }
    const Json* found = nullptr;
    for (const Json& item : value.as_array()) {
        if (item["name"] == Json("default")) found = item.find("template");
    }
    if (!found || !found->is_string()) {
        return error("{}: chat_template: none of the list's {} templates is named \"default\"", path,
                     value.as_array().size());
    }
    if (value.as_array().size() > 1) {
        log_warning("{}: of {} chat templates only \"default\" is used", path,
                    value.as_array().size());
    }
    return found->as_string();
}

}  // namespace

struct ChatTemplate::Compiled {
    std::string source;
    jinja::Block block;
};

ChatTemplate::ChatTemplate(std::shared_ptr<const Compiled> compiled)
    : compiled_(std::move(compiled)) {}

Result<ChatTemplate> ChatTemplate::compile(std::string source) {
    if (source.size() > jinja::kMaxSourceBytes) {
        return error("chat template: {} bytes, expected at most {}", source.size(),
                     jinja::kMaxSourceBytes);
    }
    auto compiled = std::make_shared<Compiled>();
    try {
        compiled->block = jinja::parse_template(source);
    } catch (const jinja::Failure& failure) {
        return to_error(failure);
    }
    compiled->source = std::move(source);
    return ChatTemplate(std::move(compiled));
}

Result<std::string> ChatTemplate::render(const Json& variables) const {
    if (!variables.is_object()) {
        return error("chat template: the variables are {}, expected an object",
                     variables.type_name());
    }
    try {
        const jinja::BudgetScope budget;
        jinja::Interpreter interpreter;
        return interpreter.render(compiled_->block, variables);
    } catch (const jinja::Failure& failure) {
        return to_error(failure);
    }
}

const std::string& ChatTemplate::source() const { return compiled_->source; }

Result<std::string> find_chat_template(const std::string& model_dir, const std::string& path) {
    if (!path.empty()) return read_file(path);
    const std::string file = model_dir + "/chat_template.jinja";
    if (exists(file)) return read_file(file);
    const std::string config_path = model_dir + "/tokenizer_config.json";
    auto config = read_json_file(config_path);
    if (!config) return config.error();
    const Json* value = config->find("chat_template");
    if (!value || value->is_null()) {
        return error("no chat template: {} does not exist and {} has no chat_template", file,
                     config_path);
    }
    return template_of_config(config_path, *value);
}

}  // namespace aerie
