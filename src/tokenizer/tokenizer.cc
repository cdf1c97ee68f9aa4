#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <unordered_map>

#include "base/hash.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/splitter.h"
#include "tokenizer/tokenizer_file.h"
#include "tokenizer/utf8.h"

namespace aerie {
namespace {

// The ids of words seen before. Direct-mapped: a new word replaces the one in its slot, so the
// size is fixed whatever the text is.
class WordCache {
  public:
    struct Slot {  // one cache line
        uint8_t num_bytes = 0;
        uint8_t num_ids = 0;
        std::array<char, 30> bytes;
        std::array<int32_t, 8> ids;
    };
    static_assert(sizeof(Slot) == 64);

    WordCache() : slots_(kNumSlots) {}

    static bool fits(std::string_view word) { return word.size() <= sizeof(Slot::bytes); }
    Slot& slot(std::string_view word) {
        return slots_[hash_bytes(word.data(), word.size()) % kNumSlots];
    }
    static bool holds(const Slot& slot, std::string_view word) {
        return std::string_view(slot.bytes.data(), slot.num_bytes) == word;
    }
    static void fill(Slot& slot, std::string_view word, std::span<const int32_t> ids) {
        if (ids.size() > slot.ids.size()) return;
        slot.num_bytes = static_cast<uint8_t>(word.size());
        slot.num_ids = static_cast<uint8_t>(ids.size());
        std::copy(word.begin(), word.end(), slot.bytes.begin());
        std::copy(ids.begin(), ids.end(), slot.ids.begin());
    }

  private:
    static constexpr size_t kNumSlots = 1 << 15;  // 2 MiB
    std::vector<Slot> slots_;
};

// What one call of encode() works with. Kept between calls, so that the cache stays warm.
struct Worker {
    RegexScratch regex;
    Bpe::Scratch bpe;
    WordCache cache;
};

// Takes words from the splitter and appends their ids.
class Encoder final : public WordSink {
  public:
    Encoder(const Bpe& bpe, Worker& worker, std::vector<int32_t>& ids)
        : bpe_(bpe), worker_(worker), ids_(ids) {}

    void word(std::string_view word) override {
        if (!WordCache::fits(word)) return bpe_.encode(word, worker_.bpe, ids_);
        WordCache::Slot& slot = worker_.cache.slot(word);
        if (WordCache::holds(slot, word)) {
            ids_.insert(ids_.end(), slot.ids.begin(), slot.ids.begin() + slot.num_ids);
            return;
        }
        const size_t before = ids_.size();
        bpe_.encode(word, worker_.bpe, ids_);
        WordCache::fill(slot, word, std::span(ids_).subspan(before));
    }

  private:
    const Bpe& bpe_;
    Worker& worker_;
    std::vector<int32_t>& ids_;
};

}  // namespace

struct Tokenizer::Impl {
    struct Token {
        std::string bytes;
        bool special = false;
        bool added = false;
    };
    std::vector<Token> tokens;  // by id
    std::unordered_map<std::string, int32_t> added_ids;
    AddedTokens added_tokens;
    Bpe bpe;
    Splitter splitter;
    std::vector<int32_t> ids_before, ids_after;
    std::string bos_token, eos_token;
    std::optional<int32_t> bos_id, eos_id;

    mutable std::mutex mutex;                                // of idle_workers
    mutable std::vector<std::unique_ptr<Worker>> idle_workers;  // at most as many as calls at once

    std::unique_ptr<Worker> take_worker() const {
        {
            std::lock_guard lock(mutex);
            if (!idle_workers.empty()) {
                auto worker = std::move(idle_workers.back());
                idle_workers.pop_back();
                return worker;
            }
        }
        return std::make_unique<Worker>();
    }
    void give_back(std::unique_ptr<Worker> worker) const {
        std::lock_guard lock(mutex);
        idle_workers.push_back(std::move(worker));
    }

    Status set_tokens(const TokenizerFile& file);
    Result<std::vector<int32_t>> ids_of(const std::vector<std::string>& tokens) const;
    std::optional<int32_t> id_of(std::string_view token) const;
    std::vector<int32_t> encode(std::string_view text, bool with_added_tokens) const;
};

Status Tokenizer::Impl::set_tokens(const TokenizerFile& file) {
    int32_t largest = -1;
    for (const VocabToken& token : file.vocab) largest = std::max(largest, token.id);
    for (const AddedToken& token : file.added_tokens) largest = std::max(largest, token.id);
    // Ids may have gaps, but an id far beyond the number of tokens is a broken file.
    const size_t num_tokens = file.vocab.size() + file.added_tokens.size();
    if (static_cast<size_t>(largest) > 4 * num_tokens + 65536) {
        return error("a token has the id {}, expected ids near the number of tokens, {}", largest,
                     num_tokens);
    }
    tokens.resize(largest + 1);
    std::vector<bool> taken(tokens.size(), false);
    for (const VocabToken& token : file.vocab) {
        if (taken[token.id]) return error("model.vocab: the id {} is given twice", token.id);
        taken[token.id] = true;
        tokens[token.id].bytes = token.bytes;
    }
    for (const AddedToken& token : file.added_tokens) {
        if (!added_ids.emplace(token.content, token.id).second) {
            return error("added_tokens: \"{}\" is given twice", token.content);
        }
        std::string bytes = byte_level_bytes(token.content);
        if (taken[token.id] && tokens[token.id].bytes != bytes) {
            return error("added_tokens: the id {} of \"{}\" is another token's", token.id,
                         token.content);
        }
        taken[token.id] = true;
        tokens[token.id] = {std::move(bytes), token.special, /*added=*/true};
    }
    return {};
}

std::optional<int32_t> Tokenizer::Impl::id_of(std::string_view token) const {
    const auto found = added_ids.find(std::string(token));
    return found != added_ids.end() ? std::optional(found->second) : bpe.find(token);
}

Result<std::vector<int32_t>> Tokenizer::Impl::ids_of(const std::vector<std::string>& names) const {
    std::vector<int32_t> ids;
    for (const std::string& name : names) {
        const auto id = id_of(name);
        if (!id) return error("post_processor: the token \"{}\" does not exist", name);
        ids.push_back(*id);
    }
    return ids;
}

std::vector<int32_t> Tokenizer::Impl::encode(std::string_view text, bool with_added_tokens) const {
    std::string repaired;
    if (valid_utf8_prefix(text) != text.size()) {
        append_repaired_utf8(repaired, text);
        text = repaired;
    }
    std::vector<int32_t> ids;
    ids.reserve(text.size() / 4 + 8);
    auto worker = take_worker();
    Encoder encoder(bpe, *worker, ids);
    if (!with_added_tokens) {
        splitter.split(text, worker->regex, encoder);
    } else {
        for (const AddedTokens::Piece& piece : added_tokens.split(text)) {
            if (piece.id >= 0) {
                ids.push_back(piece.id);
            } else {
                splitter.split(piece.text, worker->regex, encoder);
            }
        }
    }
    give_back(std::move(worker));
    return ids;
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::string& model_dir) {
    auto file = read_tokenizer_file(model_dir);
    if (!file) return file.error();
    const auto fail = [&](const Error& e) {
        return error("{}/tokenizer.json: {}", model_dir, e.message);
    };
    auto impl = std::make_unique<Impl>();
    if (auto status = impl->set_tokens(*file); !status) return fail(status.error());
    auto splitter = Splitter::make(file->split_steps);
    if (!splitter) return fail(error("pre_tokenizer: {}", splitter.message()));
    impl->splitter = *std::move(splitter);
    auto bpe = Bpe::make(*file);
    if (!bpe) return fail(bpe.error());
    impl->bpe = *std::move(bpe);
    auto before = impl->ids_of(file->tokens_before);
    if (!before) return fail(before.error());
    auto after = impl->ids_of(file->tokens_after);
    if (!after) return fail(after.error());
    impl->ids_before = *std::move(before);
    impl->ids_after = *std::move(after);
    impl->added_tokens = AddedTokens(std::move(file->added_tokens));
    impl->bos_token = std::move(file->bos_token);
    impl->eos_token = std::move(file->eos_token);
    if (!impl->bos_token.empty()) impl->bos_id = impl->id_of(impl->bos_token);
    if (!impl->eos_token.empty()) impl->eos_id = impl->id_of(impl->eos_token);
    return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
    return impl_->encode(text, true);
}

std::vector<int32_t> Tokenizer::encode_ordinary(std::string_view text) const {
    return impl_->encode(text, false);
}

std::vector<int32_t> Tokenizer::encode_with_special_tokens(std::string_view text) const {
    std::vector<int32_t> ids = impl_->encode(text, true);
    const auto& before = impl_->ids_before;
    if (ids.size() < before.size() || !std::equal(before.begin(), before.end(), ids.begin())) {
        ids.insert(ids.begin(), before.begin(), before.end());
    }
    ids.insert(ids.end(), impl_->ids_after.begin(), impl_->ids_after.end());
    return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
    std::string bytes;
    for (int32_t id : ids) {
        if (!(skip_special_tokens && is_special(id))) bytes += token_bytes(id);
    }
    if (valid_utf8_prefix(bytes) == bytes.size()) return bytes;
    std::string text;
    append_repaired_utf8(text, bytes);
    return text;
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
    if (id < 0 || id >= vocab_size()) return {};
    return impl_->tokens[id].bytes;
}

bool Tokenizer::is_special(int32_t id) const {
    return id >= 0 && id < vocab_size() && impl_->tokens[id].special;
}

bool Tokenizer::is_added(int32_t id) const {
    return id >= 0 && id < vocab_size() && impl_->tokens[id].added;
}

int32_t Tokenizer::vocab_size() const { return static_cast<int32_t>(impl_->tokens.size()); }

std::optional<int32_t> Tokenizer::token_id(std::string_view token) const {
    return impl_->id_of(token);
}

const std::string& Tokenizer::bos_token() const { return impl_->bos_token; }
const std::string& Tokenizer::eos_token() const { return impl_->eos_token; }
std::optional<int32_t> Tokenizer::bos_id() const { return impl_->bos_id; }
std::optional<int32_t> Tokenizer::eos_id() const { return impl_->eos_id; }

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}

std::string IncrementalDecoder::push(int32_t id) {
    if (skip_special_tokens_ && tokenizer_.is_special(id)) return {};
    const std::string bytes = held_back_ + std::string(tokenizer_.token_bytes(id));
    const size_t complete = bytes.size() - incomplete_utf8_suffix(bytes);
    std::string text;
    append_repaired_utf8(text, std::string_view(bytes).substr(0, complete));
    held_back_ = bytes.substr(complete);
    return text;
}

std::string IncrementalDecoder::finish() {
    std::string text;
    append_repaired_utf8(text, held_back_);
    held_back_.clear();
    return text;
}

}  // namespace aerie
