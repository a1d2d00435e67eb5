// WeightMatrix: a view of one stored matrix [rows = output features][columns = input features], quantized or not.
#pragma once

#include <cstdint>

#include "quantization/weight_format.h"
#include "tensor/data_type.h"

namespace gimbal {

// Non-owning; the loader keeps the bytes alive and naturally aligned for their element type.
struct WeightMatrix {
  WeightFormat format = WeightFormat::kFloat32;
  int64_t rows = 0;
  int64_t columns = 0;
  const void* data =
      nullptr;  // float types: [rows][columns]; int4: uint32 [rows][ceil(columns/8)]; float8: bytes [rows][columns]
  const void* scales =
      nullptr;  // int4: scale_type [rows][ceil(columns/group_size)]; float8: float [ceil(rows/128)][ceil(columns/128)]
  DataType scale_type = DataType::kBFloat16;  // int4: kBFloat16 or kFloat32
  int64_t group_size = 32;                    // int4: columns that share a scale, a multiple of 16
};

// Side of a float8 block; one scale per kFloat8BlockSize x kFloat8BlockSize values, the last blocks may be partial.
inline constexpr int64_t kFloat8BlockSize = 128;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Element (row, column) as the float it stands for. Exact: a 4-bit integer times a bfloat16 scale, or an e4m3 value
// times a float scale rounded once. The plain description that every fast kernel is compared with.
float dequantize_element(const WeightMatrix& matrix, int64_t row, int64_t column);

}  // namespace gimbal
