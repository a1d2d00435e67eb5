#include "server/request_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace gimbal {
namespace {

TEST(RequestFields, NullIsAbsentAndTheFirstFaultStays) {
  const auto object = boost::json::parse(R"({"a": null, "b": "x", "c": 7, "d": [1]})").as_object();
  FieldReader fields(object);
  EXPECT_EQ(fields.integer("a", 5, 0, 9), 5);
  EXPECT_EQ(fields.text("b"), "x");
  EXPECT_EQ(fields.integer("c", 5, 0, 9), 7);
  EXPECT_FALSE(fields.error().has_value());
  EXPECT_EQ(fields.integer("b", 5, 0, 9), 5);
  ASSERT_TRUE(fields.error().has_value());
  EXPECT_EQ(fields.error()->message, "b: \"x\" is not an integer from 0 to 9.");
  EXPECT_EQ(fields.error()->parameter, "b");
  fields.text("c");
  EXPECT_EQ(fields.error()->parameter, "b");
}

TEST(RequestFields, UnreadFieldsAreRefusedUnlessNull) {
  const auto object = boost::json::parse(R"({"known": 1, "empty": null, "strange": 2})").as_object();
  FieldReader fields(object, "outer.");
  fields.integer("known", 0, 0, 9);
  fields.refuse_unknown();
  EXPECT_EQ(fields.error()->parameter, "outer.strange");
}

TEST(RequestFields, HarmlessValuesPass) {
  const auto object =
      boost::json::parse(R"({"n": 1.0, "echo": false, "bias": {}, "penalty": 0, "bad": 2})").as_object();
  FieldReader fields(object);
  fields.only_number("n", 1);
  fields.only_boolean("echo", false);
  fields.only_absent("bias");
  fields.only_number("penalty", 0);
  EXPECT_FALSE(fields.error().has_value());
  fields.only_absent("bad");
  EXPECT_THAT(fields.error()->message, testing::HasSubstr("bad: 2 is not supported by this build"));
}

}  // namespace
}  // namespace gimbal
