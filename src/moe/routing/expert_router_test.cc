#include "moe/routing/expert_router.h"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace gimbal {
namespace {

float logit(float probability) { return std::log(probability / (1.0f - probability)); }

TEST(ExpertRouter, BiasSteersSelectionButNotTheWeight) {
  const std::vector<float> scores = {logit(0.9f), logit(0.5f), logit(0.4f), logit(0.1f)};
  const std::vector<float> bias = {-1.0f, 0.0f, 0.0f, 0.6f};  // selections: -0.1, 0.5, 0.4, 0.7
  TokenMajorBatch tokens;
  route({.scores = scores.data(),
         .bias = bias.data(),
         .num_tokens = 1,
         .num_experts = 4,
         .experts_per_token = 2,
         .scaling_factor = 2.5f},
        tokens);
  EXPECT_EQ(tokens.expert_ids, (std::vector<int32_t>{3, 1}));
  EXPECT_NEAR(tokens.weights[0], 2.5f * 0.1f / 0.6f, 1e-6f);
  EXPECT_NEAR(tokens.weights[1], 2.5f * 0.5f / 0.6f, 1e-6f);
}

TEST(ExpertRouter, TiesGoToTheLowerIndex) {
  const std::vector<float> scores(6, 0.25f), bias(6, 0.0f);
  TokenMajorBatch tokens;
  route({.scores = scores.data(), .bias = bias.data(), .num_tokens = 1, .num_experts = 6, .experts_per_token = 3},
        tokens);
  EXPECT_EQ(tokens.expert_ids, (std::vector<int32_t>{0, 1, 2}));
}

TEST(ExpertRouter, DroppedGroupsLoseEvenAgainstNegativeSelections) {
  // Group 0 holds the highest pair; all selections of it but two are below those of group 1.
  const std::vector<float> scores = {logit(0.9f), logit(0.8f), logit(0.01f), logit(0.01f),
                                     logit(0.5f), logit(0.5f), logit(0.5f),  logit(0.5f)};
  const std::vector<float> bias = {0, 0, -2.0f, -2.0f, 0, 0, 0, 0};
  TokenMajorBatch tokens;
  route({.scores = scores.data(),
         .bias = bias.data(),
         .num_tokens = 1,
         .num_experts = 8,
         .experts_per_token = 4,
         .num_groups = 2,
         .num_topk_groups = 1},
        tokens);
  EXPECT_EQ(tokens.expert_ids, (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(ExpertRouter, ScalesWithoutNormalizing) {
  const std::vector<float> scores = {logit(0.8f), logit(0.4f)}, bias = {0, 0};
  TokenMajorBatch tokens;
  route({.scores = scores.data(),
         .bias = bias.data(),
         .num_tokens = 1,
         .num_experts = 2,
         .experts_per_token = 1,
         .normalize = false,
         .scaling_factor = 2.0f},
        tokens);
  EXPECT_NEAR(tokens.weights[0], 1.6f, 1e-6f);
}

TEST(ExpertRouter, AgreesWithTheReference) {
  std::mt19937 random(51);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  for (const auto& [num_experts, num_groups, num_topk_groups, per_token] : std::vector<std::array<int64_t, 4>>{
           {384, 1, 1, 8}, {256, 8, 4, 8}, {48, 12, 3, 5}, {7, 7, 7, 7}, {160, 8, 3, 6}}) {
    std::vector<float> scores(static_cast<size_t>(50 * num_experts)), bias(static_cast<size_t>(num_experts));
    for (float& score : scores) score = normal(random);
    for (float& value : bias) value = 0.3f * normal(random);
    const RouterArgs args{.scores = scores.data(),
                          .bias = bias.data(),
                          .num_tokens = 50,
                          .num_experts = num_experts,
                          .experts_per_token = per_token,
                          .num_groups = num_groups,
                          .num_topk_groups = num_topk_groups,
                          .scaling_factor = 2.827f};
    TokenMajorBatch tokens, expected;
    route(args, tokens);
    route_reference(args, expected);
    EXPECT_EQ(tokens.expert_ids, expected.expert_ids) << num_experts;
    for (size_t i = 0; i < tokens.weights.size(); ++i) ASSERT_NEAR(tokens.weights[i], expected.weights[i], 1e-6f);
  }
}

}  // namespace
}  // namespace gimbal
