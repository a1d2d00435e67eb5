#include "ops/logit_statistics.h"

#include <cmath>

#include <gtest/gtest.h>

namespace gimbal {
namespace {

TEST(LogitStatistics, LogSumExpDoesNotOverflow) {
  const std::vector<float> logits = {1000.0f, 1000.0f};
  EXPECT_DOUBLE_EQ(log_sum_exp(logits), 1000.0 + std::log(2.0));
}

TEST(LogitStatistics, TopLogitsAreOrderedWithTiesToTheLowerId) {
  const std::vector<float> logits = {1.0f, 3.0f, 3.0f, -1.0f, 2.0f};
  const auto top = top_logits(logits, 3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].id, 1);
  EXPECT_EQ(top[1].id, 2);
  EXPECT_EQ(top[2].id, 4);
  EXPECT_EQ(top[2].logit, 2.0f);
  EXPECT_EQ(top_logits(logits, 99).size(), 5u);
}

}  // namespace
}  // namespace gimbal
