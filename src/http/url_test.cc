#include "http/url.h"

#include <gtest/gtest.h>

namespace aerie::http {
namespace {

TEST(Target, IsSplitAndDecoded) {
    EXPECT_EQ(parse_target("/a%2fb?c%2f")->path, "/a/b");
    EXPECT_EQ(parse_target("/a%2fb?c%2f")->query, "c%2f");
    EXPECT_EQ(parse_target("http://host:1/x?y")->path, "/x");
    EXPECT_EQ(parse_target("http://host")->path, "/");
    EXPECT_EQ(parse_target("/a://b")->path, "/a://b");
    EXPECT_FALSE(parse_target("/a%2").ok());
}

}  // namespace
}  // namespace aerie::http
