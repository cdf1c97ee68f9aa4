#include <gmock/gmock.h>

#include "frontend/testing/frontend_fixture.h"

namespace aerie::frontend {
namespace {

using testing::HasSubstr;

class FlushCacheTest : public FrontendFixture {};

TEST_F(FlushCacheTest, OnlyBetweenRequests) {
    start([](const Request&) { return Script{.tokens = ids("text"), .never_ends = true}; });
    EXPECT_EQ(get("/flush_cache").status, 200);
    EXPECT_EQ(post("/flush_cache", "").status, 200);
    EXPECT_EQ(engine_->num_flushes(), 2);
    http::TestClient running(frontend_->port());
    running.send(http::TestClient::post_text("/v1/chat/completions", chat_body()));
    ASSERT_TRUE(engine_->wait_requests(1));
    const auto refused = post("/flush_cache", "");
    EXPECT_EQ(refused.status, 400);
    EXPECT_THAT(refused.body, HasSubstr("1 requests are in flight"));
    EXPECT_EQ(engine_->num_flushes(), 2);
}

}  // namespace
}  // namespace aerie::frontend
