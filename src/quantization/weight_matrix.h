// WeightMatrix: a view of one stored matrix [rows = output features][columns = input features], quantized or not.
#pragma once

#include <cstdint>

#include "quantization/weight_format.h"
#include "tensor/data_type.h"

namespace gimbal {

// Non-owning; the loader keeps the bytes alive and naturally aligned for their element type.
//
// A slice may begin inside the first group or block of its scales (see weight_slice.h). The scale of (row, column) is
// the one at ((row + first_row_in_block) / 128, (column + first_column_in_group) / 128) of float8 and at
// (row, (column + first_column_in_group) / group_size) of int4; scales_per_row() below counts them.
struct WeightMatrix {
  WeightFormat format = WeightFormat::kFloat32;
  int64_t rows = 0;
  int64_t columns = 0;
  const void* data =
      nullptr;  // float types: [rows][columns]; int4: uint32 [rows][ceil(columns/8)]; float8: bytes [rows][columns]
  // int4: scale_type [rows][scales_per_row]; float8: float [ceil((first_row_in_block+rows)/128)][scales_per_row]
  const void* scales = nullptr;
  DataType scale_type = DataType::kBFloat16;  // int4: kBFloat16 or kFloat32
  int64_t group_size = 32;                    // int4: columns that share a scale, a multiple of 16
  int64_t first_row_in_block = 0;             // float8: rows of the first block that lie before row 0, in [0, 128)
  // int4: columns of the first group that lie before column 0, in [0, group_size); float8: of the first block, [0, 128)
  int64_t first_column_in_group = 0;
};

// Side of a float8 block; one scale per kFloat8BlockSize x kFloat8BlockSize values, the last blocks may be partial.
inline constexpr int64_t kFloat8BlockSize = 128;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Scales of one row (int4) or of one row of blocks (float8).
constexpr int64_t scales_per_row(const WeightMatrix& matrix) {
  const int64_t columns_per_scale = matrix.format == WeightFormat::kInt4Group ? matrix.group_size : kFloat8BlockSize;
  return ceil_div(matrix.first_column_in_group + matrix.columns, columns_per_scale);
}

// Element (row, column) as the float it stands for. Exact: a 4-bit integer times a bfloat16 scale, or an e4m3 value
// times a float scale rounded once. The plain description that every fast kernel is compared with.
float dequantize_element(const WeightMatrix& matrix, int64_t row, int64_t column);

}  // namespace gimbal
