// int4 group codec: compressed-tensors "pack-quantized", symmetric. Value = (nibble - 8) * scale of its group of
// columns.
#pragma once

#include <cstdint>
#include <span>

#include "quantization/weight_matrix.h"

namespace gimbal {

// Packs q in [-8, 7] along the columns: word k holds columns 8k..8k+7, column 8k+j in bits 4j..4j+3 as q + 8. A last
// partial word is padded with zero bits. `words` has ceil(values.size()/8) elements.
void pack_int4_row(std::span<const int8_t> values, std::span<uint32_t> words);

// The inverse: q of every column.
void unpack_int4_row(std::span<const uint32_t> words, std::span<int8_t> values);

float dequantize_int4_element(const WeightMatrix& matrix, int64_t row, int64_t column);

}  // namespace gimbal
