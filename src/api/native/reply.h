// SGLang's native reply bodies. Errors are OpenAI's, which hold SGLang's members too.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/reply.h"
#include "base/clock.h"

namespace aerie::native {

struct ReplyHeader {
    std::string id;
    TimePoint arrival;
    int n = 1;
    std::vector<int> num_prompt_tokens;  // [prompt]
    bool is_batch = false;               // the request was a list: so is the reply
    bool logprobs = false;
    bool drafts = false;  // the model drafts: how many tokens a step gave is told
};

// {text, output_ids, meta_info} for each choice, a list where there is more than one or the request
// was a batch. A stream's events hold all that the choice has so far, with its index.
std::unique_ptr<api::ReplyFormat> generate_reply(ReplyHeader header);

}  // namespace aerie::native
