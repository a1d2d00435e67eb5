#include "ops/sampling.h"

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace gimbal {
namespace {

class SamplingTest : public testing::TestWithParam<OpBackend> {
 protected:
  std::optional<int32_t> sample(const SamplingArgs& args) const { return sampling(args, {.backend = GetParam()}); }
};

INSTANTIATE_TEST_SUITE_P(Backends, SamplingTest, testing::Values(OpBackend::kCpu, OpBackend::kReference));

TEST_P(SamplingTest, TemperatureZeroTakesTheHighestWithTiesToTheLowerId) {
  const std::vector<float> logits = {0.5f, 2.0f, 2.0f, 1.0f};
  EXPECT_EQ(sample({.logits = logits, .temperature = 0}), 1);
  const std::vector<int32_t> forbidden = {1, 2};
  EXPECT_EQ(sample({.logits = logits, .temperature = 0, .forbidden_ids = forbidden}), 3);
}

TEST_P(SamplingTest, NotFiniteLogitsGiveNothing) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const std::vector<float> logits = {0.0f, bad, 1.0f};
    EXPECT_EQ(sample({.logits = logits, .temperature = 0}), std::nullopt);
    EXPECT_EQ(sample({.logits = logits}), std::nullopt);
  }
}

TEST_P(SamplingTest, FrequenciesFollowTheProbabilities) {
  const std::vector<float> logits = {std::log(0.1f), std::log(0.6f), std::log(0.3f)};
  std::map<int32_t, int> counts;
  constexpr int kDraws = 20000;
  for (int position = 0; position < kDraws; ++position)
    ++counts[*sample({.logits = logits, .seed = 42, .position = position})];
  EXPECT_NEAR(counts[0], 0.1 * kDraws, 250);
  EXPECT_NEAR(counts[1], 0.6 * kDraws, 400);
  EXPECT_NEAR(counts[2], 0.3 * kDraws, 400);
}

TEST_P(SamplingTest, FiltersCutTheTail) {
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f), std::log(0.1f)};
  const auto highest_seen = [&](SamplingArgs args) {
    int32_t highest = 0;
    args.logits = logits;
    for (args.position = 0; args.position < 500; ++args.position) highest = std::max(highest, *sample(args));
    return highest;
  };
  EXPECT_EQ(highest_seen({}), 3);
  EXPECT_EQ(highest_seen({.top_k = 2}), 1);
  EXPECT_EQ(highest_seen({.top_k = 1}), 0);
  EXPECT_EQ(highest_seen({.top_p = 0.65f}), 1);
  EXPECT_EQ(highest_seen({.top_p = 0.75f}), 2);
  EXPECT_EQ(highest_seen({.min_p = 0.45f}), 2);
  EXPECT_EQ(highest_seen({.min_p = 0.55f}), 1);
  EXPECT_EQ(highest_seen({.temperature = 0.01f}), 0);
}

TEST(Sampling, BackendsDrawTheSameTokens) {
  std::mt19937 random(31);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> logits(500);
    for (float& logit : logits) logit = normal(random);
    const SamplingArgs args{.logits = logits,
                            .temperature = 0.7f,
                            .top_k = round % 3 == 0 ? 0 : 40,
                            .top_p = round % 2 == 0 ? 1.0f : 0.9f,
                            .min_p = round % 5 == 0 ? 0.05f : 0.0f,
                            .seed = random(),
                            .position = round};
    EXPECT_EQ(sampling(args, {.backend = OpBackend::kCpu}), sampling(args, {.backend = OpBackend::kReference}))
        << round;
  }
}

TEST(Sampling, RandomNumbersDependOnSeedAndPositionOnly) {
  EXPECT_EQ(uniform_random(1, 2), uniform_random(1, 2));
  EXPECT_NE(uniform_random(1, 2), uniform_random(1, 3));
  EXPECT_NE(uniform_random(1, 2), uniform_random(2, 2));
  // Known answer of Philox 4x32-10 for counter 0 and key 0: 6627e8d5 e169c58d ...
  EXPECT_DOUBLE_EQ(uniform_random(0, 0), static_cast<double>(0x6627e8d5e169c58dULL >> 11) * 0x1p-53);
}

}  // namespace
}  // namespace gimbal
