#include "parallel/expert_balancer.h"

#include <algorithm>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gimbal {
namespace {

using testing::ElementsAre;

ExpertPlacement balance_one(const ExpertPlacementShape& shape, const std::vector<uint64_t>& counts) {
  return balance_experts(shape, {counts});
}

TEST(ExpertBalancer, HeaviestCopiesGoToTheLeastLoadedRank) {
  // 9 to rank 0, 7 to rank 1, 5 to rank 1 (7 < 9), 1 to rank 0, the only one with room.
  const ExpertPlacementShape shape{.num_layers = 1, .num_experts = 4, .num_redundant = 0, .num_ranks = 2};
  const std::vector<uint64_t> counts = {9, 7, 1, 5};
  const ExpertPlacement placement = balance_one(shape, counts);
  EXPECT_THAT(placement.experts_of(0, 0), ElementsAre(0, 2));
  EXPECT_THAT(placement.experts_of(0, 1), ElementsAre(1, 3));
  EXPECT_DOUBLE_EQ(load_imbalance(placement, counts, 0), 12.0 / 11.0);
  EXPECT_DOUBLE_EQ(load_imbalance(ExpertPlacement::trivial(shape), counts, 0), 16.0 / 11.0);
}

TEST(ExpertBalancer, RedundantCopiesGoWhereACopyCarriesMost) {
  // Extra copies in turn: expert 1 (12 a copy), expert 0 (8), expert 1 again (6).
  const ExpertPlacementShape shape{.num_layers = 1, .num_experts = 3, .num_redundant = 3, .num_ranks = 3};
  const std::vector<uint64_t> counts = {8, 12, 4};
  const ExpertPlacement placement = balance_one(shape, counts);
  EXPECT_EQ(placement.copies_of(0, 0).size(), 2u);
  EXPECT_EQ(placement.copies_of(0, 1).size(), 3u);
  EXPECT_EQ(placement.copies_of(0, 2).size(), 1u);
  // All copies carry 4: expert 0 on ranks 0 and 1, then expert 1 on 2, 0 and 1, then expert 2 where room is left.
  EXPECT_THAT(placement.experts_of(0, 0), ElementsAre(0, 1));
  EXPECT_THAT(placement.experts_of(0, 1), ElementsAre(0, 1));
  EXPECT_THAT(placement.experts_of(0, 2), ElementsAre(1, 2));
  EXPECT_DOUBLE_EQ(load_imbalance(placement, counts, 0), 1.0);
}

TEST(ExpertBalancer, TiesGoToLowerExpertsAndLowerRanks) {
  const ExpertPlacementShape shape{.num_layers = 1, .num_experts = 4, .num_redundant = 2, .num_ranks = 2};
  const ExpertPlacement placement = balance_one(shape, {5, 5, 5, 5});
  EXPECT_EQ(placement.copies_of(0, 0).size(), 2u);
  EXPECT_EQ(placement.copies_of(0, 1).size(), 2u);
  // 2 and 3 carry 5 a copy and come first, then both copies of 0 and of 1.
  EXPECT_THAT(placement.experts_of(0, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(placement.experts_of(0, 1), ElementsAre(0, 1, 3));
}

TEST(ExpertBalancer, AnExpertSharesARankWithItselfOnlyForWantOfRanks) {
  const ExpertPlacementShape shape{.num_layers = 1, .num_experts = 2, .num_redundant = 4, .num_ranks = 2};
  const ExpertPlacement placement = balance_one(shape, {100, 0});
  EXPECT_EQ(placement.copies_of(0, 0).size(), 5u);
  EXPECT_THAT(placement.experts_of(0, 0), ElementsAre(0, 0, 0));
  EXPECT_THAT(placement.experts_of(0, 1), ElementsAre(0, 0, 1));
  EXPECT_DOUBLE_EQ(load_imbalance(placement, std::vector<uint64_t>{100, 0}, 0), 1.2);
}

TEST(ExpertBalancer, LayersAreIndependentAndEmptyOnesTrivial) {
  const ExpertPlacementShape shape{.num_layers = 3, .num_experts = 3, .num_redundant = 1, .num_ranks = 2};
  const ExpertPlacement placement = balance_experts(shape, {{0, 0, 0}, {0, 0, 7}, {9, 0, 0}});
  EXPECT_THAT(placement.experts_of(0, 0), ElementsAre(0, 1));
  EXPECT_THAT(placement.experts_of(0, 1), ElementsAre(2, 0));
  EXPECT_THAT(placement.experts_of(1, 0), ElementsAre(0, 2));
  EXPECT_THAT(placement.experts_of(1, 1), ElementsAre(1, 2));
  EXPECT_THAT(placement.experts_of(2, 0), ElementsAre(0, 1));
  EXPECT_THAT(placement.experts_of(2, 1), ElementsAre(0, 2));
  EXPECT_DOUBLE_EQ(load_imbalance(placement, std::vector<uint64_t>{0, 0, 0}, 0), 1.0);
  EXPECT_DOUBLE_EQ(load_imbalance(placement, std::vector<uint64_t>{9, 0, 0}, 1), 2.0);
}

TEST(ExpertBalancer, TheLargestCountsDoNotOverflow) {
  const ExpertPlacementShape shape{.num_layers = 1, .num_experts = 4, .num_redundant = 2, .num_ranks = 2};
  const ExpertPlacement placement = balance_one(shape, {~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0} - 1});
  EXPECT_THAT(placement.experts_of(0, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(placement.experts_of(0, 1), ElementsAre(0, 1, 3));
}

// Greedy takes 3 and 3 apart; only together do they match 2 + 2 + 2.
TEST(ExpertBalancer, AnEvenTrivialPlacementCanBeBetter) {
  const ExpertPlacementShape shape{.num_layers = 1, .num_experts = 6, .num_redundant = 0, .num_ranks = 2};
  const std::vector<uint64_t> counts = {3, 3, 0, 2, 2, 2};
  EXPECT_DOUBLE_EQ(load_imbalance(ExpertPlacement::trivial(shape), counts, 0), 1.0);
  EXPECT_DOUBLE_EQ(load_imbalance(balance_one(shape, counts), counts, 0), 7.0 / 6.0);
}

// A few experts take most tokens, as routers do: counts fall with a power of a random rank among the experts.
std::vector<uint64_t> skewed_counts(size_t num_experts, std::mt19937_64& random) {
  std::vector<uint64_t> counts(num_experts);
  const uint64_t power = 1 + random() % 2;
  for (uint64_t& count : counts) {
    const uint64_t place = 1 + random() % num_experts;
    count = 1000000 / (power == 1 ? place : place * place) + random() % 100;
  }
  return counts;
}

// Every expert and slot is there, and the copies of the expert that is placed first are on different ranks.
void expect_well_formed(const ExpertPlacement& placement, const std::vector<uint64_t>& counts) {
  const ExpertPlacementShape& shape = placement.shape();
  size_t num_slots = 0;
  int64_t heaviest = 0;
  const auto load_of = [&](int64_t expert) {
    return static_cast<double>(counts[static_cast<size_t>(expert)]) /
           static_cast<double>(placement.copies_of(0, expert).size());
  };
  for (int64_t expert = 0; expert < shape.num_experts; ++expert) {
    EXPECT_FALSE(placement.copies_of(0, expert).empty());
    num_slots += placement.copies_of(0, expert).size();
    if (load_of(expert) > load_of(heaviest)) heaviest = expert;
  }
  EXPECT_EQ(num_slots, static_cast<size_t>(shape.num_slots()));
  for (int64_t rank = 0; rank < shape.num_ranks; ++rank) {
    EXPECT_EQ(placement.experts_of(0, rank).size(), static_cast<size_t>(shape.slots_per_rank()));
    EXPECT_TRUE(std::ranges::is_sorted(placement.experts_of(0, rank)));
  }
  // The first expert placed found room everywhere: its copies are spread as far as there are ranks.
  std::vector<int64_t> ranks;
  for (const int32_t slot : placement.copies_of(0, heaviest)) ranks.push_back(placement.rank_of_slot(slot));
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  EXPECT_EQ(ranks.size(), std::min(placement.copies_of(0, heaviest).size(), static_cast<size_t>(shape.num_ranks)));
}

// Greedy promises no bound against trivial (see the test above), so the exceptions are counted. With this seed: two of
// 200, where trivial is within a tenth of even by luck.
TEST(ExpertBalancer, SkewedLoadsAreRarelyWorseThanTrivial) {
  constexpr uint64_t kSeed = 20240607;
  fmt::print("seed {}\n", kSeed);
  std::mt19937_64 random(kSeed);
  double sum_of_trivial = 0.0;
  double sum_of_balanced = 0.0;
  int num_worse = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const auto num_ranks = static_cast<int64_t>(2 + random() % 7);
    const auto slots_per_rank = static_cast<int64_t>(3 + random() % 14);
    const auto num_redundant = static_cast<int64_t>(random() % static_cast<uint64_t>(2 * num_ranks));
    const ExpertPlacementShape shape{.num_layers = 1,
                                     .num_experts = num_ranks * slots_per_rank - num_redundant,
                                     .num_redundant = num_redundant,
                                     .num_ranks = num_ranks};
    const std::vector<uint64_t> counts = skewed_counts(static_cast<size_t>(shape.num_experts), random);
    const ExpertPlacement placement = balance_one(shape, counts);
    EXPECT_EQ(placement, balance_one(shape, counts));
    const double trivial = load_imbalance(ExpertPlacement::trivial(shape), counts, 0);
    const double balanced = load_imbalance(placement, counts, 0);
    if (balanced > trivial * (1 + 1e-12)) {
      ++num_worse;
      fmt::print("trial {}: balanced {:.4f}, trivial {:.4f}\n", trial, balanced, trivial);
      EXPECT_LT(trivial, 1.1);
      EXPECT_LT(balanced, 1.05 * trivial);
    }
    sum_of_trivial += trivial;
    sum_of_balanced += balanced;
    expect_well_formed(placement, counts);
  }
  EXPECT_LE(num_worse, 2);
  EXPECT_LT(sum_of_balanced, 0.6 * sum_of_trivial);
  fmt::print("mean imbalance: trivial {:.2f}, balanced {:.2f}\n", sum_of_trivial / 200, sum_of_balanced / 200);
}

}  // namespace
}  // namespace gimbal
