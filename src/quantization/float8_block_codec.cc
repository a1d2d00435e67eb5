#include "quantization/float8_block_codec.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace gimbal {

float dequantize_float8_element(const WeightMatrix& matrix, int64_t row, int64_t column) {
  const uint8_t code = static_cast<const uint8_t*>(matrix.data)[row * matrix.columns + column];
  const int64_t block_row = (row + matrix.first_row_in_block) / kFloat8BlockSize;
  const int64_t block_column = (column + matrix.first_column_in_group) / kFloat8BlockSize;
  const int64_t scale_at = block_row * scales_per_row(matrix) + block_column;
  return float8_e4m3_to_float(code) * static_cast<const float*>(matrix.scales)[scale_at];
}

void quantize_float8_blocks(const Float8BlockQuantization& args) {
  constexpr float kLargest = 448.0f;
  const int64_t blocks_per_row = ceil_div(args.columns, kFloat8BlockSize);
  GIMBAL_CHECK_EQ(static_cast<int64_t>(args.scales.size()), ceil_div(args.rows, kFloat8BlockSize) * blocks_per_row);
  for (size_t block = 0; block < args.scales.size(); ++block) {
    const int64_t first_row = static_cast<int64_t>(block) / blocks_per_row * kFloat8BlockSize;
    const int64_t first_column = static_cast<int64_t>(block) % blocks_per_row * kFloat8BlockSize;
    const int64_t end_row = std::min(first_row + kFloat8BlockSize, args.rows);
    const int64_t end_column = std::min(first_column + kFloat8BlockSize, args.columns);
    float largest = 0.0f;
    for (int64_t row = first_row; row < end_row; ++row) {
      for (int64_t column = first_column; column < end_column; ++column) {
        largest = std::max(largest, std::fabs(args.values[static_cast<size_t>(row * args.columns + column)]));
      }
    }
    const float scale = largest > 0.0f ? largest / kLargest : 1.0f;
    args.scales[block] = scale;
    for (int64_t row = first_row; row < end_row; ++row) {
      for (int64_t column = first_column; column < end_column; ++column) {
        const auto at = static_cast<size_t>(row * args.columns + column);
        args.codes[at] = float_to_float8_e4m3(args.values[at] / scale);
      }
    }
  }
}

}  // namespace gimbal
