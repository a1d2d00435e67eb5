#include "ops/logit_adjustment.h"

#include <vector>

#include <gtest/gtest.h>

namespace gimbal {
namespace {

TEST(LogitAdjustment, PenaltiesComeBeforeBiases) {
  std::vector<float> logits = {2.0f, -2.0f, 4.0f, 1.0f};
  const std::vector<TokenCount> seen = {{.id = 0, .num_generated = 0}, {.id = 1, .num_generated = 3}};
  const std::vector<LogitBias> biases = {{.id = 1, .bias = 10.0f}, {.id = 3, .bias = -5.0f}};
  logit_adjustment({.biases = biases,
                    .seen = seen,
                    .repetition_penalty = 2.0f,
                    .frequency_penalty = 0.5f,
                    .presence_penalty = 0.25f},
                   logits);
  EXPECT_EQ(logits, (std::vector<float>{1.0f, -4.0f - 1.75f + 10.0f, 4.0f, -4.0f}));
}

TEST(LogitAdjustment, NothingAskedChangesNothing) {
  std::vector<float> logits = {2.0f, -2.0f};
  logit_adjustment({}, logits);
  EXPECT_EQ(logits, (std::vector<float>{2.0f, -2.0f}));
}

}  // namespace
}  // namespace gimbal
