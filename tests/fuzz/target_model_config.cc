// A model's config.json, and behind kNextPart its generation_config.json.
#include "config/model_config.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace aerie;
    static const fuzz::Folder folder;
    std::string_view rest = fuzz::text_of(data, size);
    folder.write("config.json", fuzz::take_part(rest));
    folder.write("generation_config.json", rest.empty() ? "{}" : rest);
    std::vector<std::string> errors;
    const ModelConfig config = read_model_config(folder.path(), errors);
    if (!errors.empty()) return 0;
    fuzz::require(config.vocab_size > 0 && config.hidden_size > 0, "a model has a size");
    fuzz::require(config.num_experts_per_tok <= config.n_routed_experts,
                  "no more experts a token than there are");
    fuzz::require(config.softmax_scale() > 0, "the softmax scale is a number");
    return 0;
}
