#include "ops/rms_norm.h"

#include <cmath>

#include "base/check.h"

namespace gimbal {

void rms_norm(const RmsNormArgs& args, const OpContext& context) {
  GIMBAL_CHECK(args.weight != nullptr);
  GIMBAL_CHECK_GE(args.x_stride, args.num_columns);
  GIMBAL_CHECK_GE(args.y_stride, args.num_columns);
  if (context.backend == OpBackend::kReference) return rms_norm_reference(args);
  rms_norm_cpu(args);
}

void rms_norm_reference(const RmsNormArgs& args) {
  for (int64_t row = 0; row < args.num_rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    float* y = args.y + row * args.y_stride;
    double sum = 0.0;
    for (int64_t column = 0; column < args.num_columns; ++column) sum += static_cast<double>(x[column]) * x[column];
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(args.num_columns) + args.epsilon);
    for (int64_t column = 0; column < args.num_columns; ++column) {
      y[column] = static_cast<float>(x[column] * scale) * args.weight[column];
    }
  }
}

}  // namespace gimbal
