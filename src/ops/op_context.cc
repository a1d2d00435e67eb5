#include "ops/op_context.h"

#include <array>

namespace gimbal {

std::span<const BackendRecord<OpBackend>> op_backends() {
  static constexpr std::array<BackendRecord<OpBackend>, 2> kRecords = {{
      {OpBackend::kCpu, "cpu", "vector kernels for the instruction set found at run time"},
      {OpBackend::kReference, "reference", "plain loops, for comparison"},
  }};
  return kRecords;
}

}  // namespace gimbal
