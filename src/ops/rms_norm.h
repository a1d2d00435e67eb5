// rms_norm: y = weight * x / sqrt(mean(x^2) + epsilon), row by row, statistics in float32 or better.
#pragma once

#include <cstdint>

#include "ops/op_context.h"

namespace gimbal {

struct RmsNormArgs {
  const float* x = nullptr;  // [num_rows][num_columns], row stride x_stride
  int64_t x_stride = 0;
  const float* weight = nullptr;  // [num_columns]
  float* y = nullptr;             // [num_rows][num_columns], row stride y_stride; may be x itself
  int64_t y_stride = 0;
  int64_t num_rows = 0;
  int64_t num_columns = 0;
  double epsilon = 1e-6;
};

void rms_norm(const RmsNormArgs& args, const OpContext& context);
void rms_norm_cpu(const RmsNormArgs& args);
void rms_norm_reference(const RmsNormArgs& args);

}  // namespace gimbal
