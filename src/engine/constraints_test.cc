#include "engine/constraints.h"

#include <gmock/gmock.h>

#include "grammar/testing/fixture.h"

namespace aerie::engine {
namespace {

using testing::HasSubstr;

class ConstraintsTest : public testing::Test {
  protected:
    // A sequence that begins with its output.
    schedule::Sequence& obeying(const Grammar& grammar) {
        Request request;
        request.id = 1;
        request.sampling.grammar = grammar;
        uint64_t seen = news_.value();
        bool ready = !constraints_.hold(request);
        for (const TimePoint end = after(20); !ready && Clock::now() < end;) {
            seen = news_.wait(seen, end);
            ready = !constraints_.take_ready().empty();
        }
        EXPECT_TRUE(ready);
        sequence_.id = 1;
        sequence_.sampling = request.sampling;
        return sequence_;
    }

    // Gains tokens of this text, `count` at most; the error, if there is one.
    std::string gain(schedule::Sequence& sequence, const std::string& text, int count) {
        const int32_t token = grammar::demo_tokenizer().encode(text).front();
        for (int i = 0; i < count; ++i) {
            auto mask = constraints_.mask_for(sequence);
            if (!mask) return mask.message();
            EXPECT_TRUE(grammar::allows({mask->begin(), mask->end()}, token)) << i;
            const Status accepted = constraints_.accept(sequence, token);
            if (!accepted) return accepted.message();
            sequence.tokens.push_back(token);
        }
        return "";
    }

    grammar::Compiler compiler_{grammar::demo_tokenizer(),
                                {.eos_ids = {*grammar::demo_tokenizer().eos_id()}}};
    Event news_;
    Constraints constraints_{&compiler_, news_, {}};
    schedule::Sequence sequence_;
};

TEST_F(ConstraintsTest, WhatTakesLongerWithEachTokenEnds) {
    for (const char* grammar :
         {"root ::= root root | \"a\"", "root ::= (root \"a\"* root)* | [a-z]*"}) {
        constraints_.forget(1);
        sequence_ = {};
        auto& sequence = obeying({Grammar::Kind::kEbnf, grammar, false});
        EXPECT_THAT(gain(sequence, "a", 100000), HasSubstr("takes too long")) << grammar;
    }
}

TEST_F(ConstraintsTest, WhatIsLongButPlainDoesNot) {
    auto& sequence = obeying({Grammar::Kind::kRegex, "a*", false});
    EXPECT_EQ(gain(sequence, "a", 20000), "");
}

}  // namespace
}  // namespace aerie::engine
