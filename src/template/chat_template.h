// Chat templates: the Jinja that model repositories write, rendered byte for byte as Python's
// Jinja2 does in the environment that `transformers` gives it (sandboxed and immutable, trim_blocks,
// lstrip_blocks, break and continue, tojson, raise_exception, strftime_now, generation blocks).
// What is not supported is refused by name.
#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "base/result.h"

namespace aerie {

class ChatTemplate {
  public:
    // The error holds "chat template, line L: …".
    static Result<ChatTemplate> compile(std::string source);

    // `variables` is an object: messages, tools, add_generation_prompt, bos_token, eos_token and
    // whatever else the template reads. Any thread; one call takes at most a few seconds and a
    // bounded amount of memory, whatever the template and the variables are. Where the template
    // calls raise_exception("…") the error is exactly that text.
    Result<std::string> render(const Json& variables) const;

    const std::string& source() const;

  private:
    struct Compiled;
    explicit ChatTemplate(std::shared_ptr<const Compiled> compiled);
    std::shared_ptr<const Compiled> compiled_;  // shared, so that a template is a cheap value
};

// The text of a model's template: the file `path` where that is not empty; or else
// model_dir/chat_template.jinja; or else chat_template of model_dir/tokenizer_config.json, which is
// a text or a list of {name, template} with one named "default". The error says where it looked.
Result<std::string> find_chat_template(const std::string& model_dir, const std::string& path = "");

}  // namespace aerie
