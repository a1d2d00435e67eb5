// expert_router: router scores to (expert, weight) pairs, as DeepSeek-V3 and Kimi K2 do it ("noaux_tc").
//
//   p = sigmoid(z); selection = p + bias; with groups: a group's score is the sum of its two highest selections, the
//   best num_topk_groups groups stay; the experts_per_token highest selections win, ties to the lower index; weight = p
//   (never selection - bias), divided by the sum of the winners' p + 1e-20 when normalizing, times scaling_factor.
// All in float32. Source: DeepSeek-V3 reference code; dropped groups count as -infinity.
#pragma once

#include <cstdint>

#include "moe/token_layouts.h"

namespace gimbal {

struct RouterArgs {
  const float* scores = nullptr;  // [num_tokens][num_experts], z = W_gate x
  const float* bias = nullptr;    // [num_experts], steers selection only
  int64_t num_tokens = 0;
  int64_t num_experts = 0;
  int64_t experts_per_token = 0;
  int64_t num_groups = 1;
  int64_t num_topk_groups = 1;
  bool normalize = true;
  float scaling_factor = 1.0f;
};

// Fills `tokens`; each token's result depends on its own scores only.
void route(const RouterArgs& args, TokenMajorBatch& tokens);
// Sorts everything, in double precision; for comparison.
void route_reference(const RouterArgs& args, TokenMajorBatch& tokens);

}  // namespace gimbal
