#include "moe/expert_runner/expert_runner.h"

#include <cmath>
#include <cstring>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "moe/exchange/token_exchange.h"
#include "ops/instruction_sets_for_test.h"

namespace gimbal {
namespace {

// Eight int4 experts with 33 -> 20 -> 33 features: both sides cut through groups and words.
class ExpertRunnerTest : public testing::Test {
 protected:
  static constexpr int64_t kHidden = 33, kIntermediate = 20, kExperts = 8, kPerToken = 3;

  void SetUp() override {
    for (int64_t i = 0; i < kExperts; ++i) {
      experts_.push_back({random_weight(kIntermediate, kHidden), random_weight(kIntermediate, kHidden),
                          random_weight(kHidden, kIntermediate)});
    }
  }
  WeightMatrix random_weight(int64_t rows, int64_t columns) {
    auto& words = words_.emplace_back(static_cast<size_t>(rows * ceil_div(columns, 8)));
    for (uint32_t& word : words) word = static_cast<uint32_t>(random_());
    auto& scales = scales_.emplace_back();
    for (int64_t i = 0; i < rows * ceil_div(columns, 32); ++i)
      scales.push_back(float_to_bfloat16(0.02f + 0.001f * static_cast<float>(random_() % 50)));
    return {.format = WeightFormat::kInt4Group,
            .rows = rows,
            .columns = columns,
            .data = words.data(),
            .scales = scales.data()};
  }
  TokenMajorBatch random_tokens(int64_t num_tokens) {
    TokenMajorBatch tokens{.num_tokens = num_tokens, .experts_per_token = kPerToken, .expert_ids = {}, .weights = {}};
    for (int64_t i = 0; i < num_tokens * kPerToken; ++i) {
      tokens.expert_ids.push_back(
          static_cast<int32_t>((i / kPerToken * 5 + i % kPerToken * 2) % (kExperts - 1)));  // the last expert gets none
      tokens.weights.push_back(0.1f * static_cast<float>(1 + i % 7));
    }
    return tokens;
  }
  // The routed part of a layer for these tokens.
  std::vector<float> run(const TokenMajorBatch& tokens, const std::vector<float>& x, ExpertRunnerKind kind) {
    const auto exchange = make_exchange_none(
        {.hidden_size = kHidden, .experts_per_token = kPerToken, .slots_per_rank = kExperts}, /*stage_rank=*/0);
    ReceivedTokens received;
    EXPECT_TRUE(exchange->dispatch({.batch = &tokens, .rows = x.data()}, received).has_value());
    const ExpertMajorBatch batch = sort_by_expert(received.pairs, kExperts);
    std::vector<float> rows(static_cast<size_t>(batch.num_rows() * kHidden)), y(rows.size()),
        out(static_cast<size_t>(tokens.num_tokens * kHidden));
    std::vector<float> intermediate(static_cast<size_t>(batch.num_rows() * 2 * kIntermediate));
    gather_rows(batch, x.data(), kHidden, rows.data());
    ThreadTeam team(2);
    run_experts(
        {.experts = experts_, .batch = &batch, .x = rows.data(), .intermediate = intermediate.data(), .y = y.data()},
        {.kind = kind, .team = &team});
    EXPECT_TRUE(
        exchange
            ->combine({.batch = &tokens, .rows = x.data()}, {.rows = y.data(), .pair_row = batch.pair_row}, out.data())
            .has_value());
    return out;
  }
  std::vector<float> random_x(int64_t num_tokens) {
    std::normal_distribution<float> normal;
    std::vector<float> x(static_cast<size_t>(num_tokens * kHidden));
    for (float& value : x) value = normal(random_);
    return x;
  }

  std::mt19937 random_{61};
  std::vector<ExpertWeights> experts_;
  std::vector<std::vector<uint32_t>> words_;
  std::vector<std::vector<uint16_t>> scales_;
};

TEST_F(ExpertRunnerTest, SortKeepsTokensInOrderAndFindsEveryPair) {
  const std::vector<ExpertPair> pairs = {{.row = 0, .local_slot = 4}, {.row = 0, .local_slot = 1},
                                         {.row = 1, .local_slot = 1}, {.row = 1, .local_slot = 0},
                                         {.row = 2, .local_slot = 4}, {.row = 2, .local_slot = 1}};
  const ExpertMajorBatch batch = sort_by_expert(pairs, 5);
  EXPECT_THAT(batch.expert_begin, testing::ElementsAre(0, 1, 4, 4, 4, 6));
  EXPECT_THAT(batch.row_token, testing::ElementsAre(1, 0, 1, 2, 0, 2));
  EXPECT_THAT(batch.pair_row, testing::ElementsAre(4, 1, 2, 0, 5, 3));
}

TEST_F(ExpertRunnerTest, RunnersAgree) {
  for (const int64_t num_tokens : {1, 2, 9, 40}) {
    const auto tokens = random_tokens(num_tokens);
    const auto x = random_x(num_tokens);
    const auto expected = run(tokens, x, ExpertRunnerKind::kReference);
    for_each_instruction_set([&] {
      const auto y = run(tokens, x, ExpertRunnerKind::kCpuSimd);
      for (size_t i = 0; i < y.size(); ++i)
        ASSERT_NEAR(y[i], expected[i], 1e-4f * (1.0f + std::fabs(expected[i]))) << num_tokens;
    });
  }
}

TEST_F(ExpertRunnerTest, ATokenHasTheSameBitsInEveryBatch) {
  const auto tokens = random_tokens(40);
  const auto x = random_x(40);
  for_each_instruction_set([&] {
    const auto together = run(tokens, x, ExpertRunnerKind::kCpuSimd);
    for (int64_t token = 0; token < 40; ++token) {
      const auto first = tokens.expert_ids.begin() + token * kPerToken;
      const auto first_weight = tokens.weights.begin() + token * kPerToken;
      const TokenMajorBatch alone{.num_tokens = 1,
                                  .experts_per_token = kPerToken,
                                  .expert_ids = {first, first + kPerToken},
                                  .weights = {first_weight, first_weight + kPerToken}};
      const auto y =
          run(alone, {x.begin() + token * kHidden, x.begin() + (token + 1) * kHidden}, ExpertRunnerKind::kCpuSimd);
      ASSERT_EQ(std::memcmp(y.data(), together.data() + token * kHidden, kHidden * sizeof(float)), 0) << token;
    }
  });
}

TEST_F(ExpertRunnerTest, NoRowsIsNoWork) {
  const TokenMajorBatch tokens{.num_tokens = 0, .experts_per_token = kPerToken, .expert_ids = {}, .weights = {}};
  EXPECT_TRUE(run(tokens, {}, ExpertRunnerKind::kCpuSimd).empty());
}

}  // namespace
}  // namespace gimbal
