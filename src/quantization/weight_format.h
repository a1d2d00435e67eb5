// How a weight matrix is stored.
#pragma once

#include <cstdint>
#include <string_view>

namespace gimbal {

// "What is stored decides": a matrix is kInt4Group exactly where `<name>.weight_packed` exists, kFloat8Block where
// `<name>.weight` is e4m3 (with `<name>.weight_scale_inv`), otherwise the type of `<name>.weight`.
enum class WeightFormat : uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  // compressed-tensors pack-quantized: weight_packed int32 [rows, columns/8], weight_scale [rows, columns/group_size],
  // weight_shape [2]. Symmetric; value = (nibble - 8) * scale; lowest nibble first. facts: published K2-Thinking
  // format.
  kInt4Group,
  // weight e4m3 [rows, columns], weight_scale_inv float32 [ceil(rows/128), ceil(columns/128)]; value = code *
  // scale_inv.
  kFloat8Block,
};

// "float32", "float16", "bfloat16", "int4 group", "float8 block".
std::string_view name_of(WeightFormat format);

}  // namespace gimbal
