#include "moe/token_layouts.h"

#include "base/check.h"

namespace gimbal {

ExpertMajorBatch sort_by_expert(std::span<const ExpertPair> pairs, int64_t num_experts) {
  ExpertMajorBatch batch;
  batch.expert_begin.assign(static_cast<size_t>(num_experts) + 1, 0);
  for (const ExpertPair& pair : pairs) {
    GIMBAL_CHECK(pair.local_slot >= 0 && pair.local_slot < num_experts);
    ++batch.expert_begin[static_cast<size_t>(pair.local_slot) + 1];
  }
  for (size_t expert = 0; expert < static_cast<size_t>(num_experts); ++expert)
    batch.expert_begin[expert + 1] += batch.expert_begin[expert];
  std::vector<int64_t> next(batch.expert_begin.begin(), batch.expert_begin.end() - 1);
  batch.row_token.resize(pairs.size());
  batch.pair_row.resize(pairs.size());
  for (size_t pair = 0; pair < pairs.size(); ++pair) {
    const int64_t row = next[static_cast<size_t>(pairs[pair].local_slot)]++;
    batch.row_token[static_cast<size_t>(row)] = pairs[pair].row;
    batch.pair_row[pair] = row;
  }
  return batch;
}

}  // namespace gimbal
