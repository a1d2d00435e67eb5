#include "model/deepseek_v3/moe_layer.h"

#include "model/deepseek_v3/dense_mlp.h"
#include "moe/routing/expert_router.h"
#include "ops/matmul.h"
#include "ops/residual_add.h"

namespace gimbal {
namespace {

void route_rows(const MoeWeights& weights, const ModelConfig& config, int64_t num_rows, const OpContext& context,
                DecoderWorkspace& workspace) {
  matmul({.x = workspace.normed.data(),
          .num_rows = num_rows,
          .x_stride = config.hidden_size,
          .weight = weights.router,
          .y = workspace.router_scores.data(),
          .y_stride = config.num_experts},
         context);
  const RouterArgs args{.scores = workspace.router_scores.data(),
                        .bias = weights.router_bias.data(),
                        .num_tokens = num_rows,
                        .num_experts = config.num_experts,
                        .experts_per_token = config.num_experts_per_token,
                        .num_groups = config.num_expert_groups,
                        .num_topk_groups = config.num_topk_groups,
                        .normalize = config.normalize_topk_prob,
                        .scaling_factor = static_cast<float>(config.routed_scaling_factor)};
  if (context.backend == OpBackend::kReference) return route_reference(args, workspace.routed);
  route(args, workspace.routed);
}

}  // namespace

void moe_layer(const MoeWeights& weights, const ModelConfig& config, int64_t num_rows, const DecoderContext& context,
               DecoderWorkspace& workspace) {
  route_rows(weights, config, num_rows, context.ops, workspace);
  const ExpertMajorBatch batch = sort_by_expert(workspace.routed, config.num_experts);
  gather_rows(batch, workspace.normed.data(), config.hidden_size, workspace.expert_rows.data());
  run_experts({.experts = weights.experts,
               .batch = &batch,
               .x = workspace.expert_rows.data(),
               .intermediate = workspace.expert_intermediate.data(),
               .y = workspace.expert_output.data()},
              context.experts);
  combine_rows({.tokens = &workspace.routed,
                .batch = &batch,
                .rows = workspace.expert_output.data(),
                .hidden_size = config.hidden_size,
                .y = workspace.block_output.data()});
  if (!weights.shared) return;
  // The gathered rows have been used; their memory takes the shared expert's output.
  dense_mlp(*weights.shared, num_rows, context.ops, workspace, workspace.expert_rows.data());
  residual_add(
      {.x = workspace.block_output.data(), .y = workspace.expert_rows.data(), .count = num_rows * config.hidden_size},
      context.ops);
}

}  // namespace gimbal
