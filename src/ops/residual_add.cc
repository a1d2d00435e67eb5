#include "ops/residual_add.h"

#include "base/check.h"

namespace gimbal {

void residual_add(const ResidualAddArgs& args, const OpContext& context) {
  GIMBAL_CHECK_GE(args.count, 0);
  if (context.backend == OpBackend::kReference) return residual_add_reference(args);
  residual_add_cpu(args);
}

void residual_add_reference(const ResidualAddArgs& args) {
  for (int64_t i = args.count - 1; i >= 0; --i) args.x[i] = args.y[i] + args.x[i];
}

}  // namespace gimbal
