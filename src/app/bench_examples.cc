#include "app/bench_load.h"
#include "base/json.h"

namespace aerie::bench {
namespace {

constexpr int kMaxTokens = 1 << 24;

// Ids of `list`; the error says what it is instead.
Status read_ids(const Json& list, std::vector<int32_t>& into) {
    if (!list.is_array() || list.as_array().empty()) return error("expected a list of token ids");
    for (const Json& id : list.as_array()) {
        if (!id.is_int() || id.as_int() < 0 || id.as_int() >= kMaxTokens) {
            return error("found {}, expected a token id", id.dump());
        }
        into.push_back(static_cast<int32_t>(id.as_int()));
    }
    return {};
}

}  // namespace

Result<std::vector<Example>> read_examples(const std::string& path) {
    auto text = read_file(path);
    if (!text) return text.error();
    auto list = Json::parse(*text);
    if (!list) return error("{}: {}", path, list.message());
    if (!list->is_array() || list->as_array().empty()) {
        return error("{}: expected a list of objects with prompt_ids and output_ids", path);
    }
    std::vector<Example> examples;
    for (const Json& given : list->as_array()) {
        const auto wrong = [&](const char* member, const std::string& why) {
            return error("{}: {}[{}]: {}", path, member, examples.size(), why);
        };
        Example example;
        if (Status read = read_ids(given["prompt_ids"], example.prompt_ids); !read) {
            return wrong("prompt_ids", read.message());
        }
        const Json& length = given["output_len"];
        if (length.is_int() && length.as_int() > 0 && length.as_int() < kMaxTokens) {
            example.output_len = static_cast<int>(length.as_int());
        } else {
            std::vector<int32_t> output;
            if (Status read = read_ids(given["output_ids"], output); !read) {
                return wrong("output_ids", read.message());
            }
            example.output_len = static_cast<int>(output.size());
        }
        examples.push_back(std::move(example));
    }
    return examples;
}

}  // namespace aerie::bench
