// The pre-tokeniser: cuts text into the words that BPE works in.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/regex.h"
#include "tokenizer/tokenizer_file.h"

namespace aerie {

class WordSink {
  public:
    virtual ~WordSink() = default;
    virtual void word(std::string_view bytes) = 0;  // never empty
};

class Splitter {
  public:
    static Result<Splitter> make(const std::vector<SplitStep>& steps);

    // Gives the words of valid UTF-8 to the sink, in order. Together they are the text, but for
    // what a step with the behaviour "Removed" removes.
    void split(std::string_view text, RegexScratch& scratch, WordSink& sink) const;

  private:
    struct Step {
        Regex regex;
        SplitStep::Behavior behavior;
        bool invert;
    };
    void split_from(size_t step_idx, std::string_view text, RegexScratch& scratch,
                    WordSink& sink) const;
    void split_and_join(size_t step_idx, std::string_view text, RegexScratch& scratch,
                        WordSink& sink) const;

    std::vector<Step> steps_;
};

}  // namespace aerie
