// The two named layouts in which tokens meet experts.
#pragma once

#include <cstdint>
#include <vector>

namespace gimbal {

// Token-major: what routing decides. Pair (token, slot) of expert ids [num_tokens][experts_per_token] and their
// weights.
struct TokenMajorBatch {
  int64_t num_tokens = 0;
  int64_t experts_per_token = 0;
  std::vector<int32_t> expert_ids;  // [num_tokens][experts_per_token], slots by falling selection score
  std::vector<float> weights;       // [num_tokens][experts_per_token], of the unbiased scores, scaled
};

// Expert-major: the same pairs sorted by expert, tokens in rising order within one. What expert runners compute on.
struct ExpertMajorBatch {
  std::vector<int64_t> expert_begin;  // [num_experts + 1], rows of expert e are [expert_begin[e], expert_begin[e + 1])
  std::vector<int32_t> row_token;     // [num_rows] token of a row
  std::vector<int64_t> pair_row;      // [num_tokens][experts_per_token] row of a pair
  int64_t num_rows() const { return static_cast<int64_t>(row_token.size()); }
};

// Sorts the pairs by expert; stable, so the result depends on the ids only.
ExpertMajorBatch sort_by_expert(const TokenMajorBatch& tokens, int64_t num_experts);

}  // namespace gimbal
