#include "base/nearest_name.h"

#include <gtest/gtest.h>

namespace gimbal {
namespace {

const std::vector<std::string> kFlags = {"--tp-size", "--pp-size", "--max-running-requests", "--mem-fraction-static",
                                         "--port"};

TEST(NearestName, CountsEdits) {
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("szie", "size"), 1u);  // neighbours swapped
}

TEST(NearestName, FindsMisspellingsNearestFirst) {
  EXPECT_EQ(nearest_names("--tp-szie", kFlags).front(), "--tp-size");
  EXPECT_EQ(nearest_names("--max-runing-requests", kFlags), std::vector<std::string>{"--max-running-requests"});
}

TEST(NearestName, FindsPrefixes) {
  EXPECT_EQ(nearest_names("--mem-fraction", kFlags), std::vector<std::string>{"--mem-fraction-static"});
}

TEST(NearestName, IsEmptyWhenNothingIsNear) { EXPECT_TRUE(nearest_names("--quux-enable-x", kFlags).empty()); }

}  // namespace
}  // namespace gimbal
