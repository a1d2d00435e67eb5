#include "quantization/weight_matrix.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "quantization/float8_block_codec.h"
#include "quantization/int4_group_codec.h"

namespace gimbal {
namespace {

TEST(Int4GroupCodec, LowestNibbleComesFirst) {
  const std::vector<int8_t> values = {-8, -7, -1, 0, 1, 2, 6, 7, 3};
  std::vector<uint32_t> words(2);
  pack_int4_row(values, words);
  EXPECT_EQ(words[0], 0xfea98710u);
  EXPECT_EQ(words[1], 0x0000000bu);  // the tail is padded with zero bits
  std::vector<int8_t> unpacked(values.size());
  unpack_int4_row(words, unpacked);
  EXPECT_EQ(unpacked, values);
}

TEST(Int4GroupCodec, ElementUsesItsRowAndGroup) {
  const int64_t rows = 2, columns = 40;  // two groups a row, the second partial
  std::vector<int8_t> values(columns, 3);
  std::vector<uint32_t> words(rows * 5);
  pack_int4_row(values, std::span(words).subspan(0, 5));
  values.assign(columns, -5);
  pack_int4_row(values, std::span(words).subspan(5, 5));
  const std::vector<uint16_t> scales = {float_to_bfloat16(1.0f), float_to_bfloat16(0.5f), float_to_bfloat16(2.0f),
                                        float_to_bfloat16(4.0f)};
  const WeightMatrix matrix{.format = WeightFormat::kInt4Group,
                            .rows = rows,
                            .columns = columns,
                            .data = words.data(),
                            .scales = scales.data()};
  EXPECT_EQ(dequantize_element(matrix, 0, 31), 3.0f);
  EXPECT_EQ(dequantize_element(matrix, 0, 32), 1.5f);
  EXPECT_EQ(dequantize_element(matrix, 1, 0), -10.0f);
  EXPECT_EQ(dequantize_element(matrix, 1, 39), -20.0f);
}

TEST(Float8BlockCodec, PartialBlocksHaveTheirOwnScale) {
  const int64_t rows = 130, columns = 129;
  std::vector<float> values(static_cast<size_t>(rows * columns));
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(random);
  values[static_cast<size_t>(129 * columns + 128)] = 896.0f;  // alone in the last block with row 128
  std::vector<uint8_t> codes(values.size());
  std::vector<float> scales(4);
  quantize_float8_blocks({.values = values, .rows = rows, .columns = columns, .codes = codes, .scales = scales});
  const WeightMatrix matrix{.format = WeightFormat::kFloat8Block,
                            .rows = rows,
                            .columns = columns,
                            .data = codes.data(),
                            .scales = scales.data()};
  EXPECT_EQ(scales[3], 2.0f);
  EXPECT_EQ(dequantize_element(matrix, 129, 128), 896.0f);
  for (int64_t row = 0; row < 128; ++row) {
    for (int64_t column = 0; column < 128; ++column) {
      const float value = values[static_cast<size_t>(row * columns + column)];
      EXPECT_NEAR(dequantize_element(matrix, row, column), value, std::fabs(value) / 16 + scales[0] / 512);
    }
  }
}

}  // namespace
}  // namespace gimbal
