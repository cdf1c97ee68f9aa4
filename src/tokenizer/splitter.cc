#include "tokenizer/splitter.h"

#include <cstdint>

namespace aerie {
namespace {

using Behavior = SplitStep::Behavior;

size_t character_bytes(std::string_view text, size_t at) {
    const auto lead = static_cast<uint8_t>(text[at]);
    return lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

struct Piece {
    size_t begin, end;  // bytes
    bool match;
};

// The pieces between and in the matches, by turns where neither is empty.
std::vector<Piece> pieces_of(std::string_view text, const Regex& regex, RegexScratch& scratch) {
    std::vector<Piece> pieces;
    size_t done = 0;
    for (size_t from = 0; from <= text.size();) {
        const auto match = regex.find(text, from, scratch);
        if (!match) break;
        if (match->begin > done) pieces.push_back({done, match->begin, false});
        if (match->end > match->begin) pieces.push_back({match->begin, match->end, true});
        done = match->end;
        from = match->end;
        if (match->end == match->begin) {
            if (from == text.size()) break;
            from += character_bytes(text, from);
        }
    }
    if (done < text.size()) pieces.push_back({done, text.size(), false});
    return pieces;
}

}  // namespace

Result<Splitter> Splitter::make(const std::vector<SplitStep>& steps) {
    Splitter splitter;
    for (const SplitStep& step : steps) {
        auto regex = Regex::compile(step.pattern, !step.is_regex);
        if (!regex) return regex.error();
        splitter.steps_.push_back({*std::move(regex), step.behavior, step.invert});
    }
    return splitter;
}

void Splitter::split(std::string_view text, RegexScratch& scratch, WordSink& sink) const {
    if (!text.empty()) split_from(0, text, scratch, sink);
}

void Splitter::split_from(size_t step_idx, std::string_view text, RegexScratch& scratch,
                          WordSink& sink) const {
    if (step_idx == steps_.size()) return sink.word(text);
    const Step& step = steps_[step_idx];
    if (step.behavior != Behavior::kIsolated) return split_and_join(step_idx, text, scratch, sink);
    // The usual behaviour, without a list of pieces: a long text goes through in one pass.
    size_t done = 0;
    for (size_t from = 0; from < text.size();) {
        const auto match = step.regex.find(text, from, scratch);
        if (!match) break;
        if (match->begin > done) {
            split_from(step_idx + 1, text.substr(done, match->begin - done), scratch, sink);
        }
        if (match->end > match->begin) {
            split_from(step_idx + 1, text.substr(match->begin, match->end - match->begin), scratch,
                       sink);
        }
        done = match->end;
        from = match->end > match->begin || match->end == text.size()
                   ? match->end
                   : match->end + character_bytes(text, match->end);
    }
    if (done < text.size()) split_from(step_idx + 1, text.substr(done), scratch, sink);
}

void Splitter::split_and_join(size_t step_idx, std::string_view text, RegexScratch& scratch,
                              WordSink& sink) const {
    const Step& step = steps_[step_idx];
    std::vector<Piece> joined;
    bool previous_match = false;
    for (Piece piece : pieces_of(text, step.regex, scratch)) {
        piece.match = piece.match != step.invert;
        bool join = false;
        switch (step.behavior) {
            case Behavior::kMergedWithPrevious: join = piece.match && !previous_match; break;
            case Behavior::kMergedWithNext: join = !piece.match && previous_match; break;
            case Behavior::kContiguous: join = piece.match == previous_match; break;
            case Behavior::kRemoved:
            case Behavior::kIsolated: break;
        }
        previous_match = piece.match;
        if (step.behavior == Behavior::kRemoved && piece.match) continue;
        if (join && !joined.empty()) {
            joined.back().end = piece.end;
        } else {
            joined.push_back(piece);
        }
    }
    for (const Piece& piece : joined) {
        split_from(step_idx + 1, text.substr(piece.begin, piece.end - piece.begin), scratch, sink);
    }
}

}  // namespace aerie
