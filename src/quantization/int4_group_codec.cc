#include "quantization/int4_group_codec.h"

#include "base/check.h"

namespace gimbal {

void pack_int4_row(std::span<const int8_t> values, std::span<uint32_t> words) {
  GIMBAL_CHECK_EQ(words.size(), (values.size() + 7) / 8);
  for (uint32_t& word : words) word = 0;
  for (size_t column = 0; column < values.size(); ++column) {
    const auto nibble = static_cast<uint32_t>(values[column] + 8) & 0xf;
    words[column / 8] |= nibble << (4 * (column % 8));
  }
}

void unpack_int4_row(std::span<const uint32_t> words, std::span<int8_t> values) {
  GIMBAL_CHECK_EQ(words.size(), (values.size() + 7) / 8);
  for (size_t column = 0; column < values.size(); ++column) {
    const uint32_t nibble = (words[column / 8] >> (4 * (column % 8))) & 0xf;
    values[column] = static_cast<int8_t>(static_cast<int>(nibble) - 8);
  }
}

float dequantize_int4_element(const WeightMatrix& matrix, int64_t row, int64_t column) {
  const int64_t words_per_row = ceil_div(matrix.columns, 8);
  const uint32_t word = static_cast<const uint32_t*>(matrix.data)[row * words_per_row + column / 8];
  const int quantized = static_cast<int>((word >> (4 * (column % 8))) & 0xf) - 8;
  const int64_t scale_at = row * scales_per_row(matrix) + (column + matrix.first_column_in_group) / matrix.group_size;
  const float scale = matrix.scale_type == DataType::kFloat32
                          ? static_cast<const float*>(matrix.scales)[scale_at]
                          : bfloat16_to_float(static_cast<const uint16_t*>(matrix.scales)[scale_at]);
  return static_cast<float>(quantized) * scale;
}

}  // namespace gimbal
