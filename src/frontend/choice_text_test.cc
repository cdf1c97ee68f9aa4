#include "frontend/choice_text.h"

#include <gmock/gmock.h>

#include "frontend/testing/frontend_fixture.h"

namespace aerie::frontend {
namespace {

using testing::HasSubstr;

class ChoiceTextTest : public FrontendFixture {};

TEST_F(ChoiceTextTest, MissingTokensAreAnErrorAndDoubledOnesAreNot) {
    const api::Call call;
    ChoiceText text(tokenizer(), call, 0);
    TokenOut out;
    out.tokens = ids("one two");
    const auto content = [&] {
        return parse::text_of(text.take(out)->events, parse::Event::Kind::kContent);
    };
    const std::string first = content();
    const std::vector<int32_t> again = out.tokens;
    out.tokens.insert(out.tokens.end(), again.begin(), again.end());
    EXPECT_EQ(first + content(), "one twoone two");
    out.position = 100;
    EXPECT_THAT(text.take(out).message(), HasSubstr("to 99 of request"));
}

}  // namespace
}  // namespace aerie::frontend
