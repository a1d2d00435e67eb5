#include "checkpoint/value_check.h"

#include <cstring>
#include <string_view>

#include <fmt/format.h>

namespace gimbal {
namespace {

// Index of the first of the values whose exponent bits are all ones (infinity or NaN); `count` when there is none.
template <typename T>
size_t find_not_finite(std::span<const std::byte> bytes, T exponent_bits) {
  const size_t count = bytes.size() / sizeof(T);
  for (size_t i = 0; i < count; ++i) {
    T bits = 0;
    std::memcpy(&bits, bytes.data() + i * sizeof(T), sizeof(T));  // may be unaligned
    if ((bits & exponent_bits) == exponent_bits) return i;
  }
  return count;
}

std::string format_index(size_t index, const std::vector<int64_t>& shape) {
  if (shape.size() != 2 || shape[1] == 0) return fmt::format("[{}]", index);
  const auto columns = static_cast<size_t>(shape[1]);
  return fmt::format("[{}, {}]", index / columns, index % columns);
}

Status verify_tensor(std::string_view name, const StoredTensor& tensor) {
  size_t bad = 0;
  switch (tensor.data_type) {
    case DataType::kFloat32:
      bad = find_not_finite<uint32_t>(tensor.bytes, 0x7f800000);
      break;
    case DataType::kFloat16:
      bad = find_not_finite<uint16_t>(tensor.bytes, 0x7c00);
      break;
    case DataType::kBFloat16:
      bad = find_not_finite<uint16_t>(tensor.bytes, 0x7f80);
      break;
    default:
      return {};
  }
  if (bad == tensor.bytes.size() / static_cast<size_t>(size_of(tensor.data_type))) return {};
  return fail(Error::invalid(
      fmt::format("The checkpoint is damaged: {} holds infinity or NaN at index {} where every value must be "
                  "finite. Nothing computed with it would be right; download its shard again.",
                  name, format_index(bad, tensor.shape)),
      "--model-path"));
}

}  // namespace

Status verify_values(const Checkpoint& checkpoint, const PlannedWeight& weight) {
  if (weight.columns == 0) return verify_tensor(weight.tensors[0].name, checkpoint.tensor(weight.tensors[0].name));
  if (weight.format != WeightFormat::kInt4Group && weight.format != WeightFormat::kFloat8Block) return {};
  return verify_tensor(weight.tensors[1].name, checkpoint.tensor(weight.tensors[1].name));
}

Status verify_values(const Checkpoint& checkpoint) {
  for (const PlannedWeight& weight : checkpoint.plan().weights)
    GIMBAL_RETURN_IF_ERROR(verify_values(checkpoint, weight));
  return {};
}

}  // namespace gimbal
