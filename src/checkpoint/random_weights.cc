#include "checkpoint/random_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "quantization/weight_matrix.h"
#include "tensor/data_type.h"

namespace gimbal {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

// The finalizer of splitmix64: a bijection whose outputs for successive counters pass the usual tests.
constexpr uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

uint64_t key_of(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return mix(hash + mix(seed + kGolden));
}

uint64_t random_bits(uint64_t key, uint64_t counter) { return mix(key + counter * kGolden); }

// Bell-shaped with mean 0 and standard deviation 1: the sum of four uniform 16-bit numbers. Integers up to the last
// step, so every machine makes the same value.
float random_normal(uint64_t bits) {
  const auto sum =
      static_cast<int32_t>((bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48));
  constexpr float kStandardDeviation = 37837.23f;  // sqrt(4 / 12) * 65536
  return static_cast<float>(sum - 2 * 65535) / kStandardDeviation;
}

// Scales vary by a quarter around a mean that keeps the square mean at 1: E[u^2] = 1 + 1/48 for u in [0.75, 1.25].
float random_scale_factor(uint64_t bits) {
  const float uniform = 0.75f + static_cast<float>(bits >> 41) * (0.5f / 8388608.0f);
  return uniform * 0.98974331861f;
}

// Nibbles 1..15, so that codes -7..7 have mean 0: a nibble of 0 becomes 8 (code 0).
uint32_t random_nibbles(uint64_t bits) {
  auto nibbles = static_cast<uint32_t>(bits >> 32);
  const uint32_t is_set = (nibbles | (nibbles >> 1) | (nibbles >> 2) | (nibbles >> 3)) & 0x11111111u;
  return nibbles | ((~is_set & 0x11111111u) << 3);
}
constexpr float kNibbleDeviation = 4.18330013f;  // sqrt(2 * (1 + 4 + ... + 49) / 16)

// 256 codes spread evenly over [-224, 224].
struct Float8Table {
  std::array<uint8_t, 256> codes{};
  float deviation = 0;
  Float8Table() {
    double square_sum = 0;
    for (int i = 0; i < 256; ++i) {
      codes[static_cast<size_t>(i)] = float_to_float8_e4m3((static_cast<float>(i) - 127.5f) * (224.0f / 127.5f));
      const double value = float8_e4m3_to_float(codes[static_cast<size_t>(i)]);
      square_sum += value * value;
    }
    deviation = static_cast<float>(std::sqrt(square_sum / 256));
  }
};

const Float8Table& float8_table() {
  static const Float8Table table;
  return table;
}

// Mean and standard deviation of the numbers of a tensor that is stored as floats.
struct Spread {
  float mean = 0;
  float deviation = 1;
};

Spread spread_of(const PlannedWeight& weight) {
  if (weight.columns > 0) return {0.0f, 1.0f / std::sqrt(static_cast<float>(weight.columns))};
  if (weight.role == WeightRole::kRouterBias) return {0.0f, 0.01f};
  return {1.0f, 0.05f};
}

// Writes elements [first, first + bytes.size() / sizeof(T)) as value(element). memcpy: `bytes` may be unaligned.
template <typename T, typename Value>
void fill_elements(uint64_t begin, std::span<std::byte> bytes, const Value& value) {
  GIMBAL_CHECK_EQ(bytes.size() % sizeof(T), size_t{0});
  const uint64_t first = begin / sizeof(T);
  const uint64_t count = bytes.size() / sizeof(T);
  for (uint64_t i = 0; i < count; ++i) {
    const T element = value(first + i);
    std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof(T));
  }
}

template <typename Value>
void fill_floats(DataType type, uint64_t begin, std::span<std::byte> bytes, const Value& value) {
  if (type == DataType::kFloat32) {
    fill_elements<float>(begin, bytes, value);
  } else {
    GIMBAL_CHECK(type == DataType::kBFloat16);
    fill_elements<uint16_t>(begin, bytes, [&](uint64_t i) { return float_to_bfloat16(value(i)); });
  }
}

void fill_packed(const PlannedWeight& weight, uint64_t key, uint64_t begin, std::span<std::byte> bytes) {
  const auto words_per_row = static_cast<uint64_t>(ceil_div(weight.columns, 8));
  const auto tail = static_cast<uint32_t>(weight.columns % 8);
  const uint32_t tail_mask = tail == 0 ? ~0u : (1u << (4 * tail)) - 1;
  fill_elements<uint32_t>(begin, bytes, [&](uint64_t i) {
    const uint32_t word = random_nibbles(random_bits(key, i));
    return i % words_per_row == words_per_row - 1 ? word & tail_mask : word;
  });
}

void fill_int4_part(const PlannedWeight& weight, size_t index, uint64_t key, uint64_t begin,
                    std::span<std::byte> bytes) {
  const DataType type = weight.tensors[index].data_types.front();
  if (index == 0) {
    fill_packed(weight, key, begin, bytes);
  } else if (index == 1) {
    const float scale = spread_of(weight).deviation / kNibbleDeviation;
    fill_floats(type, begin, bytes, [&](uint64_t i) { return scale * random_scale_factor(random_bits(key, i)); });
  } else if (type == DataType::kInt64) {
    fill_elements<int64_t>(begin, bytes, [&](uint64_t i) { return i == 0 ? weight.rows : weight.columns; });
  } else {
    GIMBAL_CHECK(type == DataType::kInt32);
    fill_elements<int32_t>(begin, bytes,
                           [&](uint64_t i) { return static_cast<int32_t>(i == 0 ? weight.rows : weight.columns); });
  }
}

void fill_float8_part(const PlannedWeight& weight, size_t index, uint64_t key, uint64_t begin,
                      std::span<std::byte> bytes) {
  const Float8Table& table = float8_table();
  if (index == 0) {
    fill_elements<uint8_t>(begin, bytes,
                           [&](uint64_t i) { return table.codes[(random_bits(key, i / 8) >> (8 * (i % 8))) & 0xff]; });
    return;
  }
  const float scale = spread_of(weight).deviation / table.deviation;
  fill_floats(weight.tensors[index].data_types.front(), begin, bytes,
              [&](uint64_t i) { return scale * random_scale_factor(random_bits(key, i)); });
}

}  // namespace

void fill_random_tensor(const PlannedWeight& weight, size_t index, uint64_t seed, uint64_t begin,
                        std::span<std::byte> bytes) {
  const PlannedTensor& tensor = weight.tensors[index];
  GIMBAL_CHECK_EQ(begin % kRandomPartBytes, uint64_t{0});
  GIMBAL_CHECK_LE(begin + bytes.size(), tensor.bytes());
  const uint64_t key = key_of(seed, tensor.name);
  if (weight.format == WeightFormat::kInt4Group) return fill_int4_part(weight, index, key, begin, bytes);
  if (weight.format == WeightFormat::kFloat8Block) return fill_float8_part(weight, index, key, begin, bytes);
  const Spread spread = spread_of(weight);
  fill_floats(tensor.data_types.front(), begin, bytes,
              [&](uint64_t i) { return spread.mean + spread.deviation * random_normal(random_bits(key, i)); });
}

}  // namespace gimbal
