// A model's tokenizer.json, its tokenizer_config.json, and a text for it, with kNextPart between
// them.
#include "fuzz.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace aerie;
    static const fuzz::Folder folder;
    std::string_view rest = fuzz::text_of(data, size);
    folder.write("tokenizer.json", fuzz::take_part(rest));
    const std::string_view config = fuzz::take_part(rest);
    folder.write("tokenizer_config.json", config.empty() ? "{}" : config);
    auto loaded = Tokenizer::load(folder.path());
    if (!loaded) return 0;
    const Tokenizer& tokenizer = **loaded;
    const std::string_view text = rest.empty() ? "Hello  wörld 123\n🦅 <s>" : rest;
    for (const auto& ids : {tokenizer.encode(text), tokenizer.encode_ordinary(text),
                            tokenizer.encode_with_special_tokens(text)}) {
        std::string streamed;
        IncrementalDecoder decoder(tokenizer, false);
        for (const int32_t id : ids) {
            fuzz::require(id >= 0 && id < tokenizer.vocab_size(), "ids are tokens");
            streamed += decoder.push(id);
        }
        streamed += decoder.finish();
        fuzz::require(streamed == tokenizer.decode(ids, false),
                      "tokens one by one give the same text");
    }
    return 0;
}
