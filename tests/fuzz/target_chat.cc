// `messages` of a chat, from the client's JSON through the three templates of tests/text.
#include <vector>

#include "api/openai/request.h"
#include "fuzz.h"
#include "template/chat_template.h"

namespace aerie::fuzz {
namespace {

const std::vector<ChatTemplate>& templates() {
    static const auto* const compiled = [] {
        auto* list = new std::vector<ChatTemplate>;
        for (const char* name : {"v31_style", "v3_tools_style", "xml_style"}) {
            const std::string path =
                fmt::format("{}/tests/text/templates/{}.jinja", AERIE_SOURCE_DIR, name);
            auto source = read_file(path);
            require(source.ok(), path + " can be read");
            auto chat = ChatTemplate::compile(*std::move(source));
            require(chat.ok(), path + " compiles");
            list->push_back(*std::move(chat));
        }
        return list;
    }();
    return *compiled;
}

}  // namespace
}  // namespace aerie::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace aerie;
    std::string_view text = fuzz::text_of(data, size);
    auto messages = Json::parse(fuzz::take_part(text));
    if (!messages) return 0;
    Json read;
    if (openai::read_messages(*messages, read)) return 0;
    Json variables = Json::object().set("messages", std::move(read)).set("bos_token", "<s>");
    variables.set("add_generation_prompt", true);
    auto tools = Json::parse(text);
    if (tools.ok()) variables.set("tools", *tools);
    for (const ChatTemplate& chat : fuzz::templates()) {
        auto prompt = chat.render(variables);
        fuzz::require(prompt.ok() || !prompt.message().empty(), "an error says what is wrong");
    }
    return 0;
}
