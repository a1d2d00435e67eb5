#include "ops/matmul.h"

#include <algorithm>

#include "base/check.h"

namespace gimbal {

void matmul(const MatmulArgs& args, const OpContext& context) {
  GIMBAL_CHECK(args.weight.data != nullptr);
  GIMBAL_CHECK_GE(args.x_stride, args.weight.columns);
  GIMBAL_CHECK_GE(args.y_stride, args.weight.rows);
  if (context.backend == OpBackend::kReference) return matmul_reference(args);
  matmul_cpu(args, *context.team);
}

void matmul_reference(const MatmulArgs& args) {
  const WeightMatrix& weight = args.weight;
  for (int64_t output = 0; output < weight.rows; ++output) {
    for (int64_t row = 0; row < args.num_rows; ++row) {
      double sum = 0.0;
      for (int64_t column = 0; column < weight.columns; ++column) {
        sum += static_cast<double>(dequantize_element(weight, output, column)) * args.x[row * args.x_stride + column];
      }
      args.y[row * args.y_stride + output] = static_cast<float>(sum);
    }
  }
}

void matmul_cpu(const MatmulArgs& args, ThreadTeam& team) {
  // Below this many multiply-adds a task, waking a thread costs more than it saves.
  constexpr int64_t kMinWorkPerTask = 64 * 1024;
  const int64_t outputs = args.weight.rows;
  const int64_t work_per_output = std::max<int64_t>(1, args.num_rows * args.weight.columns);
  const int64_t smallest_block = ceil_div(kMinWorkPerTask, work_per_output);
  const int64_t wanted_tasks = int64_t{4} * team.num_threads();
  const int64_t block = ceil_div(std::max(smallest_block, ceil_div(outputs, wanted_tasks)), 8) * 8;
  team.run(ceil_div(outputs, block), [&](int64_t task, int) {
    MatmulBlock part{.args = args, .first_output = task * block, .end_output = std::min((task + 1) * block, outputs)};
    part.args.y = args.y + part.first_output;
    matmul_block_cpu(part);
  });
}

}  // namespace gimbal
