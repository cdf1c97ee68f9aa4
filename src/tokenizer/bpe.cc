#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/hash.h"

namespace aerie {
namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr int32_t kMerged = -1;
constexpr size_t kShortWord = 32;  // bytes; up to here scanning beats a heap

uint64_t pair_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

size_t Bpe::BytesHash::operator()(std::string_view bytes) const {
    return hash_bytes(bytes.data(), bytes.size());
}

Result<Bpe> Bpe::make(const TokenizerFile& file) {
    Bpe bpe;
    bpe.ignore_merges_ = file.ignore_merges;
    bpe.ids_.reserve(file.vocab.size());
    for (const VocabToken& token : file.vocab) {
        if (token.byte_level) bpe.ids_.emplace(token.bytes, token.id);
    }
    for (int byte = 0; byte < 256; ++byte) {
        const auto id = bpe.find(std::string(1, static_cast<char>(byte)));
        if (!id) return error("model.vocab: no token for the byte 0x{:02x}, expected all 256", byte);
        bpe.byte_ids_[byte] = *id;
    }
    RETURN_IF_ERROR(bpe.add_merges(file));
    return bpe;
}

Status Bpe::add_merges(const TokenizerFile& file) {
    merges_.assign(std::bit_ceil(file.merges.size() * 2 + 2), Merge{});
    for (size_t rank = 0; rank < file.merges.size(); ++rank) {
        const auto& [left_bytes, right_bytes] = file.merges[rank];
        const auto left = find(left_bytes), right = find(right_bytes);
        const auto whole = find(left_bytes + right_bytes);
        if (!left || !right || !whole) {
            return error("model.merges[{}]: \"{}\" + \"{}\": a part or the whole is not in the "
                         "vocabulary",
                         rank, left_bytes, right_bytes);
        }
        const uint64_t pair = pair_of(*left, *right);
        size_t slot = mix64(pair) & (merges_.size() - 1);
        while (merges_[slot].pair != kNoPair && merges_[slot].pair != pair) {
            slot = (slot + 1) & (merges_.size() - 1);
        }
        merges_[slot] = {pair, static_cast<uint32_t>(rank), *whole};
    }
    return {};
}

std::optional<int32_t> Bpe::find(std::string_view bytes) const {
    const auto found = ids_.find(bytes);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
}

const Bpe::Merge* Bpe::find_merge(int32_t left, int32_t right) const {
    const uint64_t pair = pair_of(left, right);
    for (size_t slot = mix64(pair) & (merges_.size() - 1);; slot = (slot + 1) & (merges_.size() - 1)) {
        if (merges_[slot].pair == pair) return &merges_[slot];
        if (merges_[slot].pair == kNoPair) return nullptr;
    }
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
    if (ignore_merges_) {
        if (const auto id = find(word)) return ids.push_back(*id);
    }
    if (word.size() <= kShortWord) {
        encode_short(word, ids);
    } else {
        encode_long(word, scratch, ids);
    }
}

void Bpe::encode_short(std::string_view word, std::vector<int32_t>& ids) const {
    int32_t symbols[kShortWord];
    uint32_t ranks[kShortWord];  // of the merge of symbols i and i + 1
    int32_t merged[kShortWord];  // what they become
    size_t n = word.size();
    const auto look_up = [&](size_t i) {
        const Merge* merge = find_merge(symbols[i], symbols[i + 1]);
        ranks[i] = merge ? merge->rank : kNoRank;
        merged[i] = merge ? merge->id : -1;
    };
    for (size_t i = 0; i < n; ++i) symbols[i] = byte_ids_[static_cast<uint8_t>(word[i])];
    for (size_t i = 0; i + 1 < n; ++i) look_up(i);
    while (n > 1) {
        const size_t best = std::min_element(ranks, ranks + n - 1) - ranks;
        if (ranks[best] == kNoRank) break;
        symbols[best] = merged[best];
        for (size_t i = best + 1; i + 1 < n; ++i) {
            symbols[i] = symbols[i + 1];
            ranks[i] = ranks[i + 1];
            merged[i] = merged[i + 1];
        }
        --n;
        if (best + 1 < n) look_up(best);
        if (best > 0) look_up(best - 1);
    }
    ids.insert(ids.end(), symbols, symbols + n);
}

void Bpe::encode_long(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
    auto& symbols = scratch.symbols;
    auto& heap = scratch.heap;
    const auto num_symbols = static_cast<uint32_t>(word.size());
    symbols.resize(num_symbols);
    heap.clear();
    for (uint32_t i = 0; i < num_symbols; ++i) {
        symbols[i] = {byte_ids_[static_cast<uint8_t>(word[i])], i == 0 ? kNone : i - 1,
                      i + 1 == num_symbols ? kNone : i + 1};
    }
    const auto entry_of = [&](uint32_t left) -> std::optional<uint64_t> {
        const Merge* merge = find_merge(symbols[left].id, symbols[symbols[left].next].id);
        if (!merge) return std::nullopt;
        return uint64_t{merge->rank} << 32 | left;
    };
    const auto push = [&](uint32_t left) {
        if (const auto entry = entry_of(left)) {
            heap.push_back(*entry);
            std::push_heap(heap.begin(), heap.end(), std::greater<>());
        }
    };
    for (uint32_t i = 0; i + 1 < num_symbols; ++i) {
        if (const auto entry = entry_of(i)) heap.push_back(*entry);
    }
    std::make_heap(heap.begin(), heap.end(), std::greater<>());
    while (!heap.empty()) {
        std::pop_heap(heap.begin(), heap.end(), std::greater<>());
        const uint64_t entry = heap.back();
        heap.pop_back();
        const auto left = static_cast<uint32_t>(entry);
        // Entries are not taken out when a neighbour changes; such a one no longer fits.
        if (symbols[left].id == kMerged || symbols[left].next == kNone) continue;
        const uint32_t right = symbols[left].next;
        const Merge* merge = find_merge(symbols[left].id, symbols[right].id);
        if (!merge || merge->rank != entry >> 32) continue;
        symbols[left].id = merge->id;
        symbols[left].next = symbols[right].next;
        symbols[right].id = kMerged;
        if (symbols[left].next != kNone) symbols[symbols[left].next].previous = left;
        if (symbols[left].previous != kNone) push(symbols[left].previous);
        if (symbols[left].next != kNone) push(left);
    }
    for (uint32_t i = 0; i != kNone; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace aerie
