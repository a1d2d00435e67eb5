#include "moe/token_layouts.h"

#include "base/check.h"

namespace gimbal {

ExpertMajorBatch sort_by_expert(const TokenMajorBatch& tokens, int64_t num_experts) {
  ExpertMajorBatch batch;
  batch.expert_begin.assign(static_cast<size_t>(num_experts) + 1, 0);
  for (const int32_t expert : tokens.expert_ids) {
    GIMBAL_CHECK(expert >= 0 && expert < num_experts);
    ++batch.expert_begin[static_cast<size_t>(expert) + 1];
  }
  for (size_t expert = 0; expert < static_cast<size_t>(num_experts); ++expert)
    batch.expert_begin[expert + 1] += batch.expert_begin[expert];
  std::vector<int64_t> next(batch.expert_begin.begin(), batch.expert_begin.end() - 1);
  batch.row_token.resize(tokens.expert_ids.size());
  batch.pair_row.resize(tokens.expert_ids.size());
  for (size_t pair = 0; pair < tokens.expert_ids.size(); ++pair) {
    const int64_t row = next[static_cast<size_t>(tokens.expert_ids[pair])]++;
    batch.row_token[static_cast<size_t>(row)] =
        static_cast<int32_t>(static_cast<int64_t>(pair) / tokens.experts_per_token);
    batch.pair_row[pair] = row;
  }
  return batch;
}

}  // namespace gimbal
