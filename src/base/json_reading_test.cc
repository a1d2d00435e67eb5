#include "base/json_reading.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gimbal {
namespace {

TEST(JsonReading, ParsesAValue) {
  const auto value = parse_json(R"({"a": [1, 2.5, null]})", "text");
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(value->at("a").as_array().size(), 3u);
}

TEST(JsonReading, NamesDocumentLineAndColumn) {
  const auto value = parse_json("{\n \"a\": nope}", "config.json");
  ASSERT_FALSE(value.has_value());
  EXPECT_EQ(value.error().kind, ErrorKind::kInvalidRequest);
  EXPECT_THAT(value.error().message, testing::HasSubstr("config.json is not valid JSON"));
  EXPECT_THAT(value.error().message, testing::HasSubstr("line 2"));
}

TEST(JsonReading, RefusesIncompleteEmptyTrailingAndDeepText) {
  EXPECT_FALSE(parse_json("{\"a\": 1", "text").has_value());
  EXPECT_FALSE(parse_json("", "text").has_value());
  EXPECT_FALSE(parse_json("{} {}", "text").has_value());
  EXPECT_FALSE(parse_json(std::string(400000, '['), "text").has_value());
}

}  // namespace
}  // namespace gimbal
