#include "ops/swiglu.h"

#include <cmath>

#include "base/check.h"

namespace gimbal {

void swiglu(const SwigluArgs& args, const OpContext& context) {
  GIMBAL_CHECK_GE(args.count, 0);
  if (context.backend == OpBackend::kReference) return swiglu_reference(args);
  swiglu_cpu(args);
}

void swiglu_reference(const SwigluArgs& args) {
  for (int64_t i = 0; i < args.count; ++i) {
    const double gate = args.gate[i];
    args.y[i] = static_cast<float>(gate / (1.0 + std::exp(-gate)) * args.up[i]);
  }
}

}  // namespace gimbal
