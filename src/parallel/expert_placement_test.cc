#include "parallel/expert_placement.h"

#include <unistd.h>

#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/expert_balancer.h"

namespace gimbal {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Two layers, three experts and one more slot, on two ranks.
constexpr ExpertPlacementShape kShape = {.num_layers = 2, .num_experts = 3, .num_redundant = 1, .num_ranks = 2};

Result<ExpertPlacement> read_text(const std::string& text, const ExpertPlacementShape& shape = kShape) {
  const auto path = std::filesystem::path(testing::TempDir()) / fmt::format("expert_placement_test.{}.json", getpid());
  std::ofstream(path, std::ios::binary) << text;
  auto placement = read_expert_placement(path, shape);
  std::filesystem::remove(path);
  return placement;
}

TEST(ExpertPlacement, TrivialRepeatsTheExpertsInOrder) {
  const ExpertPlacementShape shape{.num_layers = 2, .num_experts = 4, .num_redundant = 2, .num_ranks = 3};
  const ExpertPlacement placement = ExpertPlacement::trivial(shape);
  EXPECT_EQ(placement.shape(), shape);
  for (const int64_t layer : {0, 1}) {
    EXPECT_THAT(placement.experts_of(layer, 0), ElementsAre(0, 1));
    EXPECT_THAT(placement.experts_of(layer, 1), ElementsAre(2, 3));
    EXPECT_THAT(placement.experts_of(layer, 2), ElementsAre(0, 1));
    EXPECT_THAT(placement.copies_of(layer, 0), ElementsAre(0, 4));
    EXPECT_THAT(placement.copies_of(layer, 3), ElementsAre(3));
  }
  EXPECT_EQ(placement.rank_of_slot(1), 0);
  EXPECT_EQ(placement.rank_of_slot(4), 2);
}

TEST(ExpertPlacement, LayersOfGivenSlotsDiffer) {
  const auto placement = ExpertPlacement::from_slots(kShape, {{2, 0, 1, 2}, {1, 1, 0, 2}});
  ASSERT_TRUE(placement.has_value()) << placement.error().message;
  EXPECT_THAT(placement->experts_of(0, 0), ElementsAre(2, 0));
  EXPECT_THAT(placement->experts_of(1, 1), ElementsAre(0, 2));
  EXPECT_THAT(placement->copies_of(0, 2), ElementsAre(0, 3));
  EXPECT_THAT(placement->copies_of(0, 1), ElementsAre(2));
  EXPECT_THAT(placement->copies_of(1, 1), ElementsAre(0, 1));
  EXPECT_NE(*placement, ExpertPlacement::trivial(kShape));
  EXPECT_EQ(*ExpertPlacement::from_slots(kShape, {{0, 1, 2, 0}, {0, 1, 2, 0}}), ExpertPlacement::trivial(kShape));
}

TEST(ExpertPlacement, RefusesSlotsByName) {
  struct Case {
    std::vector<std::vector<int32_t>> slots;
    const char* message;
  };
  const std::vector<Case> cases = {
      {{{0, 1, 2, 0}}, "must have 2 layers, found 1"},
      {{{0, 1, 2, 0}, {0, 1, 2}}, "layer 1 must have 4 slots (3 experts and 1 redundant), found 3"},
      {{{0, 1, 2, 3}, {0, 1, 2, 0}}, "layer 0, slot 3 must hold an expert from 0 to 2, found 3"},
      {{{0, 1, 2, 0}, {0, -1, 2, 0}}, "layer 1, slot 1 must hold an expert from 0 to 2, found -1"},
      {{{0, 1, 2, 0}, {0, 2, 2, 0}},
       "layer 1 must hold each of the 3 experts at least once, found no slot with "
       "expert 1"},
  };
  for (const Case& wrong : cases) {
    const auto placement = ExpertPlacement::from_slots(kShape, wrong.slots);
    ASSERT_FALSE(placement.has_value()) << wrong.message;
    EXPECT_EQ(placement.error().kind, ErrorKind::kInvalidRequest);
    EXPECT_THAT(placement.error().message, HasSubstr(wrong.message));
  }
}

TEST(ExpertPlacementDeathTest, RanksMustDivideTheSlots) {
  const ExpertPlacementShape shape{.num_layers = 1, .num_experts = 4, .num_redundant = 1, .num_ranks = 2};
  EXPECT_DEATH(ExpertPlacement::trivial(shape), "num_slots\\(\\) % shape.num_ranks == 0");
  EXPECT_DEATH((void)ExpertPlacement::from_slots(shape, {{0, 1, 2, 3, 0}}), "check failed");
}

TEST(ExpertPlacementFile, ReadsTheMapThatItWrites) {
  const auto written = ExpertPlacement::from_slots(kShape, {{2, 0, 1, 2}, {1, 1, 0, 2}});
  const std::string text = placement_json(*written);
  EXPECT_EQ(text, "{\"physical_to_logical_map\": [\n[2,0,1,2],\n[1,1,0,2]\n]}\n");
  const auto read = read_text(text);
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(*read, *written);
}

TEST(ExpertPlacementFile, BalancesTheCountsThatItWrites) {
  const std::vector<std::vector<uint64_t>> counts = {{1, 2, 40}, {0, 0, 0}};
  const std::string text = expert_load_json(counts);
  EXPECT_EQ(text, "{\"logical_count\": [\n[1,2,40],\n[0,0,0]\n]}\n");
  const auto read = read_text(text);
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(*read, balance_experts(kShape, counts));
}

TEST(ExpertPlacementFile, AddsUpSamplesAndIgnoresOtherKeys) {
  const auto read = read_text(R"({"rank": 0, "logical_count": [[[1, 0, 0], [0, 9, 0]], [[0, 2, 30], [0, 0, 5.0]]]})");
  ASSERT_TRUE(read.has_value()) << read.error().message;
  EXPECT_EQ(*read, balance_experts(kShape, {{1, 2, 30}, {0, 9, 5}}));
}

TEST(ExpertPlacementFile, FractionsAndHugeCountsKeepTheirRatios) {
  const ExpertPlacement wanted = balance_experts(kShape, {{1, 2, 4}, {4, 2, 1}});
  for (const char* counts :
       {"[[0.125, 0.25, 0.5], [4e-300, 2e-300, 1e-300]]", "[[1e307, 2e307, 4e307], [0.4, 0.2, 0.1]]",
        "[[4611686018427387904, 9223372036854775808, 18446744073709551615], [4, 2, 1]]"}) {
    const auto read = read_text(fmt::format("{{\"logical_count\": {}}}", counts));
    ASSERT_TRUE(read.has_value()) << read.error().message;
    EXPECT_EQ(*read, wanted) << counts;
  }
}

TEST(ExpertPlacementFile, RefusesBadFilesByName) {
  struct Case {
    std::string text;
    const char* message;
  };
  const std::string good = "[0,1,2,0]";
  const auto map = [&](const std::string& row) {
    return fmt::format("{{\"physical_to_logical_map\": [{}, {}]}}", good, row);
  };
  const auto count = [](const std::string& value) { return fmt::format("{{\"logical_count\": {}}}", value); };
  const std::vector<Case> cases = {
      {"", "is not valid JSON"},
      {"{\"logical_count\": [[1,2,3],", "is not valid JSON"},
      {std::string(100000, '['), "is not valid JSON"},
      {count(std::string(100, '[') + std::string(100, ']')), "is not valid JSON"},
      {count("[[1,2,NaN],[1,2,3]]"), "is not valid JSON"},
      {"[1]",
       "must be a JSON object with exactly one of physical_to_logical_map and logical_count, found an array of 1"},
      {"{}", "exactly one of physical_to_logical_map and logical_count, found neither"},
      {R"({"physical_to_logical_map": [], "logical_count": []})", "found both"},
      {R"({"physical_to_logical_map": 7})", "physical_to_logical_map must be an array of 2 layers, found 7"},
      {R"({"physical_to_logical_map": [[0,1,2,0]]})",
       "physical_to_logical_map must be an array of 2 layers, found an "
       "array of 1"},
      {map("[0,1,2]"), "physical_to_logical_map[1] must be an array of 4 slots, found an array of 3"},
      {map("null"), "physical_to_logical_map[1] must be an array of 4 slots, found null"},
      {map("[0,1,2,3]"), "physical_to_logical_map: layer 1, slot 3 must hold an expert from 0 to 2, found 3"},
      {map("[0,1,-1,2]"), "physical_to_logical_map[1][2] must be an expert from 0 to 2, found -1"},
      {map("[0,1,2,4294967296]"), "[1][3] must be an expert from 0 to 2, found 4294967296"},
      {map("[0,1,2,99999999999999999999]"), "[1][3] must be an expert from 0 to 2, found 1E20"},
      {map("[0,1,2,0.5]"), "[1][3] must be an expert from 0 to 2, found 5E-1"},
      {map("[0,1,2,\"0\"]"), "[1][3] must be an expert from 0 to 2, found a string"},
      {map("[0,1,1,0]"),
       "physical_to_logical_map: layer 1 must hold each of the 3 experts at least once, found no slot "
       "with expert 2"},
      {count("{}"), "logical_count must be an array of 2 layers, found an object"},
      {count("[]"), "logical_count must be an array of 2 layers, found an array of 0"},
      {count("[[1,2,3],[1,2]]"), "logical_count[1] must be an array of 3 experts, found an array of 2"},
      {count("[[1,2,3],[1,2,-1]]"), "logical_count[1][2] must be a finite number >= 0, found -1"},
      {count("[[1,2,true],[1,2,3]]"), "logical_count[0][2] must be a finite number >= 0, found true"},
      {count("[[1,2,[3]],[1,2,3]]"), "logical_count[0][2] must be a finite number >= 0, found an array of 1"},
      {count("[[[1,2,3],[1,2,3]],[[1,2,3]]]"), "logical_count[1] must be an array of 2 layers, found an array of 1"},
      {count("[[[1,2,3],[1,2,3]],4]"), "logical_count[1] must be an array of 2 layers, found 4"},
      {count("[[[1,2,3],[1,{},3]]]"), "logical_count[0][1][1] must be a finite number >= 0, found an object"},
      {count("[[[1,2,3],[1,1e308,3]],[[1,2,3],[1,1e308,3]]]"),
       "logical_count must have finite sums over its 2 samples, "
       "found an overflow for layer 1, expert 1"},
  };
  for (const Case& wrong : cases) {
    const auto placement = read_text(wrong.text);
    ASSERT_FALSE(placement.has_value()) << wrong.message;
    EXPECT_EQ(placement.error().kind, ErrorKind::kInvalidRequest) << wrong.message;
    EXPECT_THAT(placement.error().message, HasSubstr(wrong.message));
    EXPECT_THAT(placement.error().message, HasSubstr("expert_placement_test."));
  }
  // Beyond the range of a double: refused by the parser or as not finite.
  EXPECT_FALSE(read_text(count("[[1,2,1e999],[1,2,3]]")).has_value());
  EXPECT_THAT(read_expert_placement("/nowhere/placement.json", kShape).error().message, HasSubstr("does not exist"));
}

}  // namespace
}  // namespace gimbal
