// The two named layouts in which tokens meet experts.
#pragma once

#include <cstdint>
#include <span>
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

// One expert computation: a row of some buffer of token rows through one of this rank's experts.
struct ExpertPair {
  int32_t row = 0;          // of the buffer
  int32_t local_slot = 0;   // expert among those of this rank
  int32_t source_pair = 0;  // where the pair comes from: token * experts_per_token + slot of its owner
};

// Expert-major: pairs sorted by local expert, otherwise in the given order. What expert runners compute on.
struct ExpertMajorBatch {
  std::vector<int64_t> expert_begin;  // [num_experts + 1], rows of expert e are [expert_begin[e], expert_begin[e + 1])
  std::vector<int32_t> row_token;     // [num_rows] row of the token buffer
  std::vector<int64_t> pair_row;      // [num_pairs] row of a pair
  int64_t num_rows() const { return static_cast<int64_t>(row_token.size()); }
};

// Sorts the pairs by expert; stable, so the result depends on the pairs only.
ExpertMajorBatch sort_by_expert(std::span<const ExpertPair> pairs, int64_t num_experts);

}  // namespace gimbal
