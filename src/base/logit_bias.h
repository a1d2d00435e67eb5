// Values per token id that a request brings to its logits; used by the scheduler's plan and by ops.
#pragma once

#include <cstdint>

namespace gimbal {

struct LogitBias {
  int32_t id = 0;
  float bias = 0.0f;
};

struct TokenCount {
  int32_t id = 0;
  int32_t num_generated = 0;  // 0: only in the prompt
};

}  // namespace gimbal
