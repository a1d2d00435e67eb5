#include "tensor/data_type.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace gimbal {
namespace {

struct TypeRecord {
  DataType type;
  std::string_view safetensors_name;
  int64_t bytes;
};

constexpr std::array<TypeRecord, 15> kTypes = {{
    {DataType::kFloat32, "F32", 4},
    {DataType::kFloat16, "F16", 2},
    {DataType::kBFloat16, "BF16", 2},
    {DataType::kFloat8E4M3, "F8_E4M3", 1},
    {DataType::kInt64, "I64", 8},
    {DataType::kInt32, "I32", 4},
    {DataType::kInt8, "I8", 1},
    {DataType::kUint8, "U8", 1},
    {DataType::kBool, "BOOL", 1},
    {DataType::kFloat64, "F64", 8},
    {DataType::kFloat8E5M2, "F8_E5M2", 1},
    {DataType::kInt16, "I16", 2},
    {DataType::kUint16, "U16", 2},
    {DataType::kUint32, "U32", 4},
    {DataType::kUint64, "U64", 8},
}};

const TypeRecord& record_of(DataType type) { return kTypes[static_cast<size_t>(type)]; }

}  // namespace

int64_t size_of(DataType type) { return record_of(type).bytes; }

std::string_view safetensors_name(DataType type) { return record_of(type).safetensors_name; }

std::optional<DataType> parse_safetensors_name(std::string_view name) {
  for (const TypeRecord& record : kTypes) {
    if (record.safetensors_name == name) return record.type;
  }
  return std::nullopt;
}

uint16_t float_to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40);  // keep it quiet and not infinite
  const uint32_t round_up = 0x7fff + ((bits >> 16) & 1);
  return static_cast<uint16_t>((bits + round_up) >> 16);
}

float float16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

float float8_e4m3_to_float(uint8_t bits) {
  const int exponent = (bits >> 3) & 0xf;
  const int mantissa = bits & 7;
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

uint8_t float_to_float8_e4m3(float value) {
  if (std::isnan(value)) return 0x7f;
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const float magnitude = std::min(std::fabs(value), 448.0f);
  // Below 2^-6 the spacing is 2^-9; above it is 2^(e-3). nearbyint rounds ties to even in the default mode.
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int spacing = std::max(exponent - 4, -9);
  const float steps = std::nearbyint(std::ldexp(magnitude, -spacing));
  const float rounded = std::ldexp(steps, spacing);
  if (rounded < std::ldexp(1.0f, -6)) return static_cast<uint8_t>(sign | static_cast<uint8_t>(std::ldexp(rounded, 9)));
  std::frexp(rounded, &exponent);  // rounding may have carried into the next power of two
  const int mantissa = static_cast<int>(std::ldexp(rounded, 4 - exponent)) - 8;
  return static_cast<uint8_t>(sign | ((exponent + 6) << 3) | mantissa);
}

}  // namespace gimbal
