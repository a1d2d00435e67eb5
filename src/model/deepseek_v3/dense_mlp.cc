#include "model/deepseek_v3/dense_mlp.h"

#include "ops/matmul.h"
#include "ops/swiglu.h"

namespace gimbal {

void dense_mlp(const DenseMlpArgs& args, const OpContext& context, DecoderWorkspace& workspace) {
  const DenseMlpWeights& weights = *args.weights;
  const int64_t width = weights.gate.rows;
  MatmulArgs product{.x = args.x,
                     .num_rows = args.num_rows,
                     .x_stride = weights.gate.columns,
                     .weight = weights.gate,
                     .y = workspace.gate.data(),
                     .y_stride = width};
  matmul(product, context);
  product.weight = weights.up;
  product.y = workspace.up.data();
  matmul(product, context);
  swiglu({.gate = workspace.gate.data(),
          .up = workspace.up.data(),
          .y = workspace.gate.data(),
          .count = args.num_rows * width},
         context);
  matmul({.x = workspace.gate.data(),
          .num_rows = args.num_rows,
          .x_stride = width,
          .weight = weights.down,
          .y = args.y,
          .y_stride = weights.down.rows},
         context);
}

}  // namespace gimbal
