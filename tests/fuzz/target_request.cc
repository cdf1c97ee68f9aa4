// The body of a request of any API, which its first byte chooses.
#include <array>

#include "api/anthropic/request.h"
#include "api/native/request.h"
#include "api/openai/request.h"
#include "api/responses/request.h"
#include "fuzz.h"

namespace aerie::fuzz {
namespace {

using Parse = api::MaybeError (*)(const Json&, const api::CallDefaults&, api::Call&);

const std::array<Parse, 6> kParsers = {
    openai::parse_chat,
    openai::parse_completion,
    native::parse_generate,
    anthropic::parse_messages,
    anthropic::parse_count,
    [](const Json& body, const api::CallDefaults& defaults, api::Call& call) {
        responses::Conversations none(responses::ConversationLimits{});
        responses::Given given;
        return responses::parse_responses(body, defaults, none, call, given);
    }};

void check_call(const api::Call& call, const api::CallDefaults& defaults) {
    require(!call.prompts.empty(), "a call has a prompt");
    require(call.n >= 1 && call.n <= defaults.limits.max_n, "n is within its limit");
    require(call.sampling.top_p > 0 && call.sampling.top_p <= 1, "top_p is in (0, 1]");
    require(call.sampling.temperature >= 0, "temperature is not negative");
    require(!call.max_tokens || *call.max_tokens >= 1, "max_tokens is at least 1");
    for (const LogitBias& bias : call.sampling.logit_bias) {
        require(bias.id >= 0 && bias.id < defaults.vocab_size, "logit_bias names a token");
    }
    for (const api::Prompt& prompt : call.prompts) {
        const auto* ids = std::get_if<std::vector<int32_t>>(&prompt);
        for (size_t i = 0; ids && i < ids->size(); ++i) {
            require((*ids)[i] >= 0 && (*ids)[i] < defaults.vocab_size, "a prompt's ids are tokens");
        }
    }
}

}  // namespace
}  // namespace aerie::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace aerie;
    if (size == 0) return 0;
    auto body = Json::parse(fuzz::text_of(data + 1, size - 1), 64);
    if (!body) return 0;
    auto again = Json::parse(body->dump(), 64);
    fuzz::require(again.ok(), "what dump() writes can be read");

    api::CallDefaults defaults{.vocab_size = 1000};
    defaults.formats = {parse::ReasoningFormat::kDeepSeekV3, parse::ToolFormat::kDeepSeekV31};
    api::Call call;
    const auto parse = fuzz::kParsers[data[0] % fuzz::kParsers.size()];
    if (!body->is_object()) return 0;  // refused before it comes here
    const api::MaybeError error = parse(*body, defaults, call);
    if (!error) fuzz::check_call(call, defaults);
    if (error) {
        fuzz::require(!error->message.empty(), "an error says what is wrong");
        fuzz::require(error->status >= 400 && error->status < 500, "an error is the client's");
    }
    return 0;
}
