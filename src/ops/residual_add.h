// residual_add: x += y.
#pragma once

#include <cstdint>

#include "ops/op_context.h"

namespace gimbal {

struct ResidualAddArgs {
  float* x = nullptr;        // [count]
  const float* y = nullptr;  // [count]
  int64_t count = 0;
};

void residual_add(const ResidualAddArgs& args, const OpContext& context);
void residual_add_cpu(const ResidualAddArgs& args);
void residual_add_reference(const ResidualAddArgs& args);

}  // namespace gimbal
