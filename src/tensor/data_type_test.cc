#include "tensor/data_type.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace gimbal {
namespace {

TEST(DataType, NamesAndSizesRoundTrip) {
  for (int i = 0; i <= static_cast<int>(DataType::kUint64); ++i) {
    const auto type = static_cast<DataType>(i);
    EXPECT_EQ(parse_safetensors_name(safetensors_name(type)), type);
    EXPECT_GE(size_of(type), 1);
  }
  EXPECT_EQ(size_of(DataType::kBFloat16), 2);
  EXPECT_EQ(parse_safetensors_name("F7"), std::nullopt);
}

TEST(DataType, BFloat16RoundsTiesToEven) {
  EXPECT_EQ(float_to_bfloat16(1.0f), 0x3f80);
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie, even below
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // tie, even above
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::numeric_limits<float>::quiet_NaN()))));
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bfloat16_to_float(static_cast<uint16_t>(bits));
    if (!std::isnan(value)) {
      EXPECT_EQ(float_to_bfloat16(value), bits);
    }
  }
}

TEST(DataType, Float16KnownValues) {
  EXPECT_EQ(float16_to_float(0x3c00), 1.0f);
  EXPECT_EQ(float16_to_float(0xc000), -2.0f);
  EXPECT_EQ(float16_to_float(0x7bff), 65504.0f);
  EXPECT_EQ(float16_to_float(0x0001), std::ldexp(1.0f, -24));
  EXPECT_TRUE(std::isinf(float16_to_float(0x7c00)));
  EXPECT_TRUE(std::isnan(float16_to_float(0x7e00)));
}

TEST(DataType, Float8RoundTripsEveryCode) {
  EXPECT_EQ(float8_e4m3_to_float(0x7e), 448.0f);
  EXPECT_EQ(float8_e4m3_to_float(0x01), std::ldexp(1.0f, -9));
  EXPECT_EQ(float8_e4m3_to_float(0x08), std::ldexp(1.0f, -6));
  for (int bits = 0; bits < 256; ++bits) {
    const float value = float8_e4m3_to_float(static_cast<uint8_t>(bits));
    if ((bits & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(float_to_float8_e4m3(value), bits) << value;
    }
  }
}

TEST(DataType, Float8RoundsToTheNearestCode) {
  for (int bits = 0; bits < 0x7e; ++bits) {
    const float low = float8_e4m3_to_float(static_cast<uint8_t>(bits));
    const float high = float8_e4m3_to_float(static_cast<uint8_t>(bits + 1));
    EXPECT_EQ(float_to_float8_e4m3(low + 0.49f * (high - low)), bits);
    EXPECT_EQ(float_to_float8_e4m3(low + 0.51f * (high - low)), bits + 1);
    EXPECT_EQ(float_to_float8_e4m3(low + 0.5f * (high - low)), (bits % 2 == 0) ? bits : bits + 1);
  }
  EXPECT_EQ(float_to_float8_e4m3(1e9f), 0x7e);
}

}  // namespace
}  // namespace gimbal
