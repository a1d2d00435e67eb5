#include "checkpoint/random_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "quantization/weight_matrix.h"

namespace gimbal {
namespace {

PlannedWeight make_matrix(WeightFormat format, int64_t rows, int64_t columns) {
  PlannedWeight weight{
      .role = WeightRole::kExpertGate, .module = "m", .format = format, .rows = rows, .columns = columns};
  if (format == WeightFormat::kInt4Group) {
    weight.tensors = {{"m.weight_packed", {DataType::kInt32}, {rows, ceil_div(columns, 8)}},
                      {"m.weight_scale", {DataType::kBFloat16}, {rows, ceil_div(columns, 32)}},
                      {"m.weight_shape", {DataType::kInt64}, {2}}};
  } else if (format == WeightFormat::kFloat8Block) {
    weight.tensors = {{"m.weight", {DataType::kFloat8E4M3}, {rows, columns}},
                      {"m.weight_scale_inv", {DataType::kFloat32}, {ceil_div(rows, 128), ceil_div(columns, 128)}}};
  } else {
    weight.tensors = {
        {"m.weight", {format == WeightFormat::kFloat32 ? DataType::kFloat32 : DataType::kBFloat16}, {rows, columns}}};
  }
  return weight;
}

std::vector<std::byte> fill(const PlannedWeight& weight, size_t index, uint64_t seed) {
  std::vector<std::byte> bytes(weight.tensors[index].bytes());
  fill_random_tensor(weight, index, seed, 0, bytes);
  return bytes;
}

struct Moments {
  double mean = 0;
  double deviation = 0;
};

Moments measure(const PlannedWeight& weight, uint64_t seed) {
  const std::vector<std::byte> data = fill(weight, 0, seed);
  const std::vector<std::byte> scales = weight.tensors.size() > 1 ? fill(weight, 1, seed) : std::vector<std::byte>();
  const WeightMatrix matrix{.format = weight.format,
                            .rows = weight.rows,
                            .columns = weight.columns,
                            .data = data.data(),
                            .scales = scales.data()};
  double sum = 0;
  double squares = 0;
  for (int64_t row = 0; row < weight.rows; ++row) {
    for (int64_t column = 0; column < weight.columns; ++column) {
      const double value = dequantize_element(matrix, row, column);
      sum += value;
      squares += value * value;
    }
  }
  const double count = static_cast<double>(weight.rows * weight.columns);
  return {sum / count, std::sqrt(squares / count)};
}

TEST(RandomWeights, MatricesKeepTheSizeOfActivations) {
  for (const WeightFormat format :
       {WeightFormat::kBFloat16, WeightFormat::kFloat32, WeightFormat::kInt4Group, WeightFormat::kFloat8Block}) {
    const Moments moments = measure(make_matrix(format, 512, 1024), 3);
    const double expected = 1.0 / 32;
    EXPECT_NEAR(moments.deviation, expected, 0.05 * expected) << name_of(format);
    EXPECT_NEAR(moments.mean, 0.0, 0.01 * expected) << name_of(format);
  }
}

TEST(RandomWeights, PartsEqualTheWhole) {
  for (const WeightFormat format : {WeightFormat::kBFloat16, WeightFormat::kInt4Group, WeightFormat::kFloat8Block}) {
    const PlannedWeight weight = make_matrix(format, 24, 100);
    for (size_t i = 0; i < weight.tensors.size(); ++i) {
      const std::vector<std::byte> whole = fill(weight, i, 5);
      std::vector<std::byte> parts(whole.size());
      for (size_t begin = 0; begin < parts.size(); begin += kRandomPartBytes) {
        const size_t count = std::min<size_t>(kRandomPartBytes, parts.size() - begin);
        fill_random_tensor(weight, i, 5, begin, std::span(parts).subspan(begin, count));
      }
      EXPECT_EQ(whole, parts) << weight.tensors[i].name;
    }
  }
}

TEST(RandomWeights, DependOnSeedAndName) {
  PlannedWeight weight = make_matrix(WeightFormat::kBFloat16, 8, 64);
  const std::vector<std::byte> first = fill(weight, 0, 1);
  EXPECT_EQ(first, fill(weight, 0, 1));
  EXPECT_NE(first, fill(weight, 0, 2));
  weight.tensors[0].name = "n.weight";
  EXPECT_NE(first, fill(weight, 0, 1));
}

TEST(RandomWeights, AreTheSameOnEveryMachine) {
  const std::vector<std::byte> bytes = fill(make_matrix(WeightFormat::kFloat32, 1, 4), 0, 1);
  float values[4];
  std::memcpy(values, bytes.data(), sizeof(values));
  EXPECT_FLOAT_EQ(values[0], 0.2128327f);
  EXPECT_FLOAT_EQ(values[3], 0.4308323f);
}

TEST(RandomWeights, PackedTailIsZeroAndShapeIsStored) {
  const PlannedWeight weight = make_matrix(WeightFormat::kInt4Group, 3, 12);
  const std::vector<std::byte> packed = fill(weight, 0, 9);
  for (size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(packed[row * 8 + 6], std::byte{0});
    EXPECT_EQ(packed[row * 8 + 7], std::byte{0});
    EXPECT_NE(packed[row * 8 + 5], std::byte{0});  // every used nibble is 1..15
  }
  const std::vector<std::byte> shape = fill(weight, 2, 9);
  int64_t values[2];
  std::memcpy(values, shape.data(), sizeof(values));
  EXPECT_EQ(values[0], 3);
  EXPECT_EQ(values[1], 12);
}

TEST(RandomWeights, NormsAreNearOneAndTheRouterBiasIsSmall) {
  PlannedWeight weight{.role = WeightRole::kFinalNorm, .module = "n", .format = WeightFormat::kFloat32, .rows = 4096};
  weight.tensors = {{"n.weight", {DataType::kFloat32}, {4096}}};
  std::vector<float> values(4096);
  const auto largest_distance = [&](float from) {
    fill_random_tensor(weight, 0, 1, 0, std::as_writable_bytes(std::span(values)));
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::fabs(value - from));
    return largest;
  };
  EXPECT_LT(largest_distance(1.0f), 0.2f);
  EXPECT_GT(largest_distance(1.0f), 0.05f);
  weight.role = WeightRole::kRouterBias;
  EXPECT_LT(largest_distance(0.0f), 0.04f);
}

}  // namespace
}  // namespace gimbal
