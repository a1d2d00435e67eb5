// float8 block codec: e4m3 codes with one float scale per 128 x 128 block (DeepSeek-V3's `weight_scale_inv`, which
// multiplies).
#pragma once

#include <cstdint>
#include <span>

#include "quantization/weight_matrix.h"

namespace gimbal {

float dequantize_float8_element(const WeightMatrix& matrix, int64_t row, int64_t column);

// Quantizes values [rows][columns] to codes of the same shape and scales [ceil(rows/128)][ceil(columns/128)]:
// scale = largest magnitude of the block / 448 (1 for a block of zeros).
struct Float8BlockQuantization {
  std::span<const float> values;  // [rows][columns]
  int64_t rows = 0;
  int64_t columns = 0;
  std::span<uint8_t> codes;  // [rows][columns]
  std::span<float> scales;   // [ceil(rows/128)][ceil(columns/128)]
};
void quantize_float8_blocks(const Float8BlockQuantization& args);

}  // namespace gimbal
