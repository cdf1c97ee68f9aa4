// A chat template, and behind kNextPart the variables it is given; a conversation where there are
// none.
#include "fuzz.h"
#include "template/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace aerie;
    static const Json conversation = *Json::parse(
        R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"é 🦅"},)"
        R"({"role":"assistant","content":null,"tool_calls":[{"type":"function","function":)"
        R"({"name":"f","arguments":{"x":1.5}}}]},{"role":"tool","content":"r"}],"tools":[],)"
        R"("add_generation_prompt":true,"bos_token":"<s>","thinking":false,"n":null})");
    std::string_view text = fuzz::text_of(data, size);
    const std::string_view source = fuzz::take_part(text);
    auto compiled = ChatTemplate::compile(std::string(source));
    if (!compiled) {
        fuzz::require(!compiled.message().empty(), "an error says what is wrong");
        return 0;
    }
    auto variables = Json::parse(text);
    (void)compiled->render(variables.ok() && variables->is_object() ? *variables : conversation);
    return 0;
}
