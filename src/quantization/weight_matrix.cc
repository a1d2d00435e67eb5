#include "quantization/weight_matrix.h"

#include "quantization/float8_block_codec.h"
#include "quantization/int4_group_codec.h"

namespace gimbal {

float dequantize_element(const WeightMatrix& matrix, int64_t row, int64_t column) {
  const int64_t at = row * matrix.columns + column;
  switch (matrix.format) {
    case WeightFormat::kFloat32:
      return static_cast<const float*>(matrix.data)[at];
    case WeightFormat::kFloat16:
      return float16_to_float(static_cast<const uint16_t*>(matrix.data)[at]);
    case WeightFormat::kBFloat16:
      return bfloat16_to_float(static_cast<const uint16_t*>(matrix.data)[at]);
    case WeightFormat::kInt4Group:
      return dequantize_int4_element(matrix, row, column);
    case WeightFormat::kFloat8Block:
      return dequantize_float8_element(matrix, row, column);
  }
  return 0.0f;
}

}  // namespace gimbal
