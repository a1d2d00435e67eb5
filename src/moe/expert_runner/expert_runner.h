// expert_runner: y = down(silu(gate x) * up x) for the rows of every expert, straight from the stored weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "moe/token_layouts.h"
#include "ops/op_context.h"
#include "quantization/weight_matrix.h"

namespace gimbal {

struct ExpertWeights {
  WeightMatrix gate;  // [intermediate][hidden]
  WeightMatrix up;    // [intermediate][hidden]
  WeightMatrix down;  // [hidden][intermediate]
};

enum class ExpertRunnerKind { kCpuSimd, kReference };

std::span<const BackendRecord<ExpertRunnerKind>> expert_runners();

struct ExpertRunnerArgs {
  std::span<const ExpertWeights> experts;  // [num_experts]
  const ExpertMajorBatch* batch = nullptr;
  const float* x = nullptr;       // [num_rows][hidden], in expert-major order
  float* intermediate = nullptr;  // scratch [num_rows][2 * intermediate]
  float* y = nullptr;             // [num_rows][hidden], one row per (token, expert)
};

struct ExpertRunnerContext {
  ExpertRunnerKind kind = ExpertRunnerKind::kCpuSimd;
  ThreadTeam* team = nullptr;  // not owned
};

// A row's result depends on the row and its expert only.
void run_experts(const ExpertRunnerArgs& args, const ExpertRunnerContext& context);
void run_experts_cpu_simd(const ExpertRunnerArgs& args, ThreadTeam& team);
void run_experts_reference(const ExpertRunnerArgs& args);

// rows[r] = tokens[row_token[r]]: brings rows into expert-major order.
void gather_rows(const ExpertMajorBatch& batch, const float* tokens, int64_t hidden_size, float* rows);

}  // namespace gimbal
