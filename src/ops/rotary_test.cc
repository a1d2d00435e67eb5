#include "ops/rotary.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace gimbal {
namespace {

TEST(Rotary, RotatesAdjacentPairs) {
  const std::vector<int64_t> positions = {0, 3};
  const std::vector<double> frequencies = {1.0, 0.25};
  RotationTable table;
  make_rotation_table(positions, frequencies, 1.0, table);
  for (const auto& record : op_backends()) {
    std::vector<float> x = {1, 0, 0, 1, 9, 9, /* row 1 */ 1, 0, 0, 1, 9, 9};
    rotary({.x = x.data(), .num_rows = 2, .row_stride = 6, .num_heads = 1, .head_stride = 6, .table = &table},
           {.backend = record.kind});
    EXPECT_EQ(x[0], 1.0f);  // position 0 is unchanged
    EXPECT_EQ(x[3], 1.0f);
    EXPECT_NEAR(x[6], std::cos(3.0), 1e-6);  // (1, 0) turned by 3
    EXPECT_NEAR(x[7], std::sin(3.0), 1e-6);
    EXPECT_NEAR(x[8], -std::sin(0.75), 1e-6);  // (0, 1) turned by 0.75
    EXPECT_NEAR(x[9], std::cos(0.75), 1e-6);
    EXPECT_EQ(x[10], 9.0f);  // outside the rope part
  }
}

TEST(Rotary, ScoresDependOnTheDistanceOnly) {
  const std::vector<double> frequencies = {0.9, 0.1, 0.001};
  const std::vector<float> q = {0.3f, -1, 2, 0.5f, -0.25f, 1}, k = {1, 0.5f, -0.75f, 2, 0.1f, -1};
  const auto score = [&](int64_t q_position, int64_t k_position) {
    std::vector<float> rows(q);
    rows.insert(rows.end(), k.begin(), k.end());
    RotationTable table;
    make_rotation_table(std::vector<int64_t>{q_position, k_position}, frequencies, 1.0, table);
    rotary({.x = rows.data(), .num_rows = 2, .row_stride = 6, .num_heads = 1, .head_stride = 6, .table = &table},
           {.backend = OpBackend::kCpu});
    double sum = 0;
    for (size_t i = 0; i < 6; ++i) sum += static_cast<double>(rows[i]) * rows[6 + i];
    return sum;
  };
  EXPECT_NEAR(score(10, 3), score(200007, 200000), 1e-5);
  EXPECT_GT(std::fabs(score(10, 3) - score(11, 3)), 1e-3);
}

TEST(Rotary, AmplitudeScalesBothParts) {
  RotationTable table;
  make_rotation_table(std::vector<int64_t>{1}, std::vector<double>{0.5}, 2.0, table);
  EXPECT_FLOAT_EQ(table.cosines[0], static_cast<float>(2.0 * std::cos(0.5)));
  EXPECT_FLOAT_EQ(table.sines[0], static_cast<float>(2.0 * std::sin(0.5)));
}

}  // namespace
}  // namespace gimbal
