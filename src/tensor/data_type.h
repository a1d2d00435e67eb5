// Element types of tensors in memory and in checkpoints.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace gimbal {

enum class DataType : uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat8E4M3,  // OCP e4m3fn: no infinity, NaN is 0x7f and 0xff
  kInt64,
  kInt32,
  kInt8,
  kUint8,
  kBool,
  kFloat64,
  kFloat8E5M2,
  kInt16,
  kUint16,
  kUint32,
  kUint64,
};

// Bytes of one element.
int64_t size_of(DataType type);

// The name that safetensors headers use: "F32", "BF16", "F8_E4M3", "I32", ...
std::string_view safetensors_name(DataType type);

// The inverse; nullopt for a name this build does not know.
std::optional<DataType> parse_safetensors_name(std::string_view name);

// Exact widening of one bfloat16.
inline float bfloat16_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Rounds to nearest, ties to even; NaN stays NaN.
uint16_t float_to_bfloat16(float value);

// Exact widening of one IEEE half.
float float16_to_float(uint16_t bits);

// Exact widening of one e4m3fn value (0x7f and 0xff give NaN).
float float8_e4m3_to_float(uint8_t bits);

// Rounds to nearest, ties to even, saturating at 448; NaN stays NaN.
uint8_t float_to_float8_e4m3(float value);

}  // namespace gimbal
