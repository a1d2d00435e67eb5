#include "model/deepseek_v3/dense_mlp.h"

#include "ops/matmul.h"
#include "ops/swiglu.h"

namespace gimbal {

void dense_mlp(const DenseMlpWeights& weights, int64_t num_rows, const OpContext& context, DecoderWorkspace& workspace,
               float* y) {
  const int64_t width = weights.gate.rows;
  MatmulArgs args{.x = workspace.normed.data(),
                  .num_rows = num_rows,
                  .x_stride = weights.gate.columns,
                  .weight = weights.gate,
                  .y = workspace.gate.data(),
                  .y_stride = width};
  matmul(args, context);
  args.weight = weights.up;
  args.y = workspace.up.data();
  matmul(args, context);
  swiglu(
      {.gate = workspace.gate.data(), .up = workspace.up.data(), .y = workspace.gate.data(), .count = num_rows * width},
      context);
  matmul({.x = workspace.gate.data(),
          .num_rows = num_rows,
          .x_stride = width,
          .weight = weights.down,
          .y = y,
          .y_stride = weights.down.rows},
         context);
}

}  // namespace gimbal
