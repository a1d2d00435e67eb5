// Two sweeps over (expert, block of outputs) tasks: gate and up with the activation between, then down. Blocks keep all
// threads busy when few experts are hit; a block reads its part of the packed weights once for all rows of the expert.
#include <algorithm>

#include "moe/expert_runner/expert_runner.h"
#include "ops/matmul.h"
#include "ops/swiglu.h"

namespace gimbal {
namespace {

struct Task {
  size_t expert;
  int64_t first_output;
  int64_t end_output;
};

std::vector<Task> cut_tasks(const ExpertRunnerArgs& args, int64_t num_outputs, int num_threads) {
  int64_t num_hit = 0;
  for (size_t expert = 0; expert < args.experts.size(); ++expert) {
    num_hit += args.batch->expert_begin[expert + 1] > args.batch->expert_begin[expert] ? 1 : 0;
  }
  const int64_t blocks_per_expert =
      num_hit == 0 ? 1 : std::max<int64_t>(1, ceil_div(int64_t{4} * num_threads, num_hit));
  const int64_t block = std::max<int64_t>(16, ceil_div(ceil_div(num_outputs, blocks_per_expert), 8) * 8);
  std::vector<Task> tasks;
  for (size_t expert = 0; expert < args.experts.size(); ++expert) {
    if (args.batch->expert_begin[expert + 1] == args.batch->expert_begin[expert]) continue;
    for (int64_t first = 0; first < num_outputs; first += block)
      tasks.push_back({expert, first, std::min(first + block, num_outputs)});
  }
  return tasks;
}

// Rows of `intermediate` are [gate | up]; the product is left in the gate half.
void run_gate_and_up(const ExpertRunnerArgs& args, const Task& task) {
  const ExpertWeights& weights = args.experts[task.expert];
  const int64_t first_row = args.batch->expert_begin[task.expert];
  const int64_t intermediate_size = weights.gate.rows;
  float* gate = args.intermediate + first_row * 2 * intermediate_size + task.first_output;
  MatmulBlock block{.args = {.x = args.x + first_row * weights.gate.columns,
                             .num_rows = args.batch->expert_begin[task.expert + 1] - first_row,
                             .x_stride = weights.gate.columns,
                             .weight = weights.gate,
                             .y = gate,
                             .y_stride = 2 * intermediate_size},
                    .first_output = task.first_output,
                    .end_output = task.end_output};
  matmul_block_cpu(block);
  block.args.weight = weights.up;
  block.args.y = gate + intermediate_size;
  matmul_block_cpu(block);
  for (int64_t row = 0; row < block.args.num_rows; ++row) {
    float* gate_row = gate + row * 2 * intermediate_size;
    swiglu_cpu({.gate = gate_row,
                .up = gate_row + intermediate_size,
                .y = gate_row,
                .count = task.end_output - task.first_output});
  }
}

void run_down(const ExpertRunnerArgs& args, const Task& task) {
  const ExpertWeights& weights = args.experts[task.expert];
  const int64_t first_row = args.batch->expert_begin[task.expert];
  const int64_t row_stride = 2 * weights.gate.rows;
  matmul_block_cpu({.args = {.x = args.intermediate + first_row * row_stride,
                             .num_rows = args.batch->expert_begin[task.expert + 1] - first_row,
                             .x_stride = row_stride,
                             .weight = weights.down,
                             .y = args.y + first_row * weights.down.rows + task.first_output,
                             .y_stride = weights.down.rows},
                    .first_output = task.first_output,
                    .end_output = task.end_output});
}

}  // namespace

void run_experts_cpu_simd(const ExpertRunnerArgs& args, ThreadTeam& team) {
  if (args.batch->num_rows() == 0) return;
  const std::vector<Task> first_sweep = cut_tasks(args, args.experts.front().gate.rows, team.num_threads());
  team.run(static_cast<int64_t>(first_sweep.size()),
           [&](int64_t index, int) { run_gate_and_up(args, first_sweep[static_cast<size_t>(index)]); });
  const std::vector<Task> second_sweep = cut_tasks(args, args.experts.front().down.rows, team.num_threads());
  team.run(static_cast<int64_t>(second_sweep.size()),
           [&](int64_t index, int) { run_down(args, second_sweep[static_cast<size_t>(index)]); });
}

}  // namespace gimbal
