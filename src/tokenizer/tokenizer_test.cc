#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

namespace aerie {
namespace {

TEST(Tokenizer, LoadsDemo) {
    auto tokenizer = Tokenizer::load(AERIE_SOURCE_DIR "/models/demo");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
    EXPECT_EQ((*tokenizer)->bos_id(), 0);
    const auto ids = (*tokenizer)->encode("<｜User｜>Hello world, 12345 你好 👩‍👩‍👧!\n\n  x");
    EXPECT_EQ((*tokenizer)->decode(ids, false), "<｜User｜>Hello world, 12345 你好 👩‍👩‍👧!\n\n  x");
}

}  // namespace
}  // namespace aerie
