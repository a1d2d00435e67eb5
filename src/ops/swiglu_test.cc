#include "ops/swiglu.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "ops/instruction_sets_for_test.h"

namespace gimbal {
namespace {

TEST(Swiglu, BackendsAgreeOverTheWholeRange) {
  std::vector<float> gate, up;
  for (float value = -200.0f; value <= 200.0f; value += 0.37f) {
    gate.push_back(value);
    up.push_back(1.0f + 0.001f * value);
  }
  std::vector<float> expected(gate.size());
  const auto count = static_cast<int64_t>(gate.size());
  swiglu({.gate = gate.data(), .up = up.data(), .y = expected.data(), .count = count},
         {.backend = OpBackend::kReference});
  EXPECT_EQ(expected.back(), gate.back() * up.back());
  for_each_instruction_set([&] {
    std::vector<float> y(gate.size());
    swiglu({.gate = gate.data(), .up = up.data(), .y = y.data(), .count = count}, {.backend = OpBackend::kCpu});
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_NEAR(y[i], expected[i], 1e-6f * (1.0f + std::fabs(expected[i]))) << gate[i];
  });
}

TEST(Swiglu, PlaceDoesNotMatter) {
  const std::vector<float> gate(37, 0.7341f), up(37, -1.2345f);
  for_each_instruction_set([&] {
    std::vector<float> y(37);
    swiglu({.gate = gate.data(), .up = up.data(), .y = y.data(), .count = 37}, {.backend = OpBackend::kCpu});
    for (const float value : y) ASSERT_EQ(value, y[0]);
  });
}

}  // namespace
}  // namespace gimbal
