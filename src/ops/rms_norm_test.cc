#include "ops/rms_norm.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "ops/instruction_sets_for_test.h"

namespace gimbal {
namespace {

TEST(RmsNorm, KnownValue) {
  const std::vector<float> x = {3.0f, 4.0f}, weight = {1.0f, 2.0f};
  for (const auto& record : op_backends()) {
    std::vector<float> y(2);
    rms_norm({.x = x.data(),
              .x_stride = 2,
              .weight = weight.data(),
              .y = y.data(),
              .y_stride = 2,
              .num_rows = 1,
              .num_columns = 2,
              .epsilon = 0.0},
             {.backend = record.kind});
    EXPECT_NEAR(y[0], 3.0f / std::sqrt(12.5f), 1e-6f) << record.name;
    EXPECT_NEAR(y[1], 8.0f / std::sqrt(12.5f), 1e-6f) << record.name;
  }
}

TEST(RmsNorm, BackendsAgreeAndWorkInPlaceOnStridedRows) {
  std::mt19937 random(21);
  std::normal_distribution<float> normal;
  for (const int64_t columns : {1, 7, 64, 80, 129}) {
    const int64_t stride = columns + 5, rows = 3;
    std::vector<float> x(static_cast<size_t>(rows * stride)), weight(static_cast<size_t>(columns));
    for (float& value : x) value = normal(random);
    for (float& value : weight) value = normal(random);
    std::vector<float> expected = x;
    RmsNormArgs args = {.x = expected.data(),
                        .x_stride = stride,
                        .weight = weight.data(),
                        .y = expected.data(),
                        .y_stride = stride,
                        .num_rows = rows,
                        .num_columns = columns,
                        .epsilon = 1e-5};
    rms_norm(args, {.backend = OpBackend::kReference});
    for_each_instruction_set([&] {
      std::vector<float> y = x;
      args.x = y.data();
      args.y = y.data();
      rms_norm(args, {.backend = OpBackend::kCpu});
      for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[i], 3e-6f) << columns << " element " << i;
    });
  }
}

}  // namespace
}  // namespace gimbal
