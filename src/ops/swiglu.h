// swiglu: y = silu(gate) * up with silu(v) = v / (1 + exp(-v)).
#pragma once

#include <cstdint>

#include "ops/op_context.h"

namespace gimbal {

struct SwigluArgs {
  const float* gate = nullptr;  // [count]
  const float* up = nullptr;    // [count]
  float* y = nullptr;           // [count]; may be gate or up
  int64_t count = 0;
};

// The result of an element depends on its own inputs only, never on its place.
void swiglu(const SwigluArgs& args, const OpContext& context);
void swiglu_cpu(const SwigluArgs& args);
void swiglu_reference(const SwigluArgs& args);

}  // namespace gimbal
