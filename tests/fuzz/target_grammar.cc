// A grammar of the kind that the first byte says, up to 8 KiB, compiled and made to take a text.
#include <ctime>

#include "fuzz.h"
#include "grammar/compiler.h"
#include "grammar/matcher.h"

namespace aerie::fuzz {
namespace {

// 256 bytes, a few words and an end: masks are made in no time.
const Tokenizer& small_tokenizer() {
    static const auto* const loaded = [] {
        auto result = Tokenizer::load(AERIE_SOURCE_DIR "/tests/fuzz/tokenizer");
        require(result.ok(), "the tokenizer of tests/fuzz loads");
        return new std::unique_ptr<Tokenizer>(*std::move(result));
    }();
    return **loaded;
}

}  // namespace
}  // namespace aerie::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace aerie;
    constexpr size_t kMaxBytes = 8192;
    constexpr unsigned kNumKinds = 5;
    if (size == 0 || size > kMaxBytes) return 0;
    // Of the CPU, that limits.h lets a grammar of this size take, at the very most.
    constexpr double kMaxSeconds = 5;
    static auto* const compiler = new grammar::Compiler(
        fuzz::small_tokenizer(), {.eos_ids = {*fuzz::small_tokenizer().eos_id()},
                                  .num_threads = 1,
                                  .limit_s = 60,
                                  .max_cache_bytes = 0});
    std::string_view rest = fuzz::text_of(data + 1, size - 1);
    Grammar wanted{.kind = static_cast<Grammar::Kind>(1 + data[0] % kNumKinds),
                   .text = std::string(fuzz::take_part(rest))};
    const std::clock_t begin = std::clock();
    const grammar::Outcome outcome = compiler->compile(wanted);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    fuzz::require(seconds < kMaxSeconds, "no grammar takes long to compile");
    if (!outcome.compiled) {
        fuzz::require(!outcome.error.empty(), "an error says what is wrong");
        return 0;
    }
    auto matcher = grammar::Matcher::create(outcome.compiled, false);
    if (!matcher) return 0;
    std::vector<uint32_t> mask((*matcher)->num_words());
    for (const int32_t id :
         fuzz::small_tokenizer().encode_ordinary(rest.empty() ? "{\"a\": 1}" : rest)) {
        if (!(*matcher)->fill_mask(mask)) return 0;
        const bool allowed = (mask[static_cast<size_t>(id / 32)] >> (id % 32) & 1) != 0;
        const bool accepted = (*matcher)->accept(id).ok();
        fuzz::require(!accepted || allowed, "what is accepted is in the mask");
        if (!accepted) return 0;
    }
    return 0;
}
