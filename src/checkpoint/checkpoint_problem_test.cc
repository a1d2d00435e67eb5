#include "checkpoint/checkpoint_problem.h"

#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gimbal {
namespace {

using ::testing::ElementsAre;

TEST(CollapseNames, GathersNumbers) {
  std::vector<std::string> names;
  for (int layer = 1; layer < 8; ++layer) {
    for (int expert = 0; expert < 384; ++expert)
      names.push_back(fmt::format("model.layers.{}.mlp.experts.{}.up_proj.weight", layer, expert));
  }
  names.push_back("lm_head.weight");
  EXPECT_THAT(collapse_names(names, 5),
              ElementsAre("model.layers.{1-7}.mlp.experts.{0-383}.up_proj.weight (2688 tensors)", "lm_head.weight"));
}

TEST(CollapseNames, SaysWhenCombinationsAreMissing) {
  EXPECT_THAT(collapse_names(std::vector<std::string>{"a.0.b.1", "a.2.b.3"}, 5),
              ElementsAre("a.{0,2}.b.{1,3} (2 tensors, not every combination)"));
}

TEST(CollapseNames, CountsGroupsBeyondTheLimit) {
  EXPECT_THAT(collapse_names(std::vector<std::string>{"a", "b.1", "b.2", "c"}, 1),
              ElementsAre("a", "and 3 tensors of 2 other kinds"));
}

TEST(CollapseNames, LongListsOfRangesAreCut) {
  std::vector<std::string> names;
  for (int i = 0; i < 20; ++i) names.push_back(fmt::format("a.{}", 2 * i));
  EXPECT_THAT(collapse_names(names, 1), ElementsAre("a.{0,2,4,6,8,10,...} (20 tensors)"));
}

TEST(CollapseNames, TakesAnyName) {
  EXPECT_THAT(collapse_names(std::vector<std::string>{"", ".", "a.#.1", "12345678901234567890.x"}, 9),
              ElementsAre("", ".", "a.#.1", "12345678901234567890.x"));
}

TEST(DescribeProblems, StaysShort) {
  const std::vector<CheckpointProblem> problems(200, {"file", 1, "x", "something\n  with two lines"});
  const Error error = describe_problems("/models/m", problems);
  EXPECT_LE(std::count(error.message.begin(), error.message.end(), '\n'), 25);
  EXPECT_THAT(error.message, ::testing::HasSubstr("and 190 more problems"));
  EXPECT_EQ(error.kind, ErrorKind::kInvalidRequest);
}

}  // namespace
}  // namespace gimbal
