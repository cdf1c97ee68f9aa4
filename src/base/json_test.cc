#include "base/json.h"

namespace aerie {
namespace {

TEST(Json, KeepsOrderAndNumberTypes) {
    auto json = Json::parse(R"({"b": 1, "a": 1.0, "c": [true, null, "é"]})");
    ASSERT_TRUE(json.ok()) << json.message();
    EXPECT_TRUE((*json)["b"].is_int());
    EXPECT_TRUE((*json)["a"].is_double());
    EXPECT_EQ(json->dump(), R"({"b":1,"a":1.0,"c":[true,null,"é"]})");
}

TEST(Json, ErrorNamesThePlace) {
    auto json = Json::parse("{\n  \"a\": x}");
    ASSERT_FALSE(json.ok());
    EXPECT_THAT(json.message(), testing::HasSubstr("line 2 column 8 (byte 9)"));
}

TEST(Json, RepeatedKeyKeepsTheLast) {
    auto json = Json::parse(R"({"a": 1, "b": 2, "a": 3})");
    ASSERT_TRUE(json.ok());
    EXPECT_EQ(json->dump(), R"({"b":2,"a":3})");
}

TEST(Json, RepeatedKeyIsAnErrorWhereAsked) {
    const auto json = Json::parse(R"([{"a":1,"b":{"c":2,"c":3}}])", 200, Json::RepeatedKey::kError);
    ASSERT_FALSE(json.ok());
    EXPECT_THAT(json.message(), testing::HasSubstr("repeated key \"c\""));
}

TEST(Json, DepthIsBounded) {
    EXPECT_FALSE(Json::parse(std::string(1000, '[') + std::string(1000, ']')).ok());
    EXPECT_TRUE(Json::parse(std::string(100, '[') + std::string(100, ']')).ok());
}

TEST(Json, BadUtf8IsAnErrorNotACrash) { EXPECT_FALSE(Json::parse("\"\xff\"").ok()); }

TEST(Json, NotANumberIsNull) { EXPECT_EQ(Json(0.0 / 0.0).dump(), "null"); }

}  // namespace
}  // namespace aerie
