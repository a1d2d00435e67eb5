#include "parallel/rank_map.h"

#include "base/check.h"

namespace gimbal {

RankCoordinates coordinates_of(const ParallelLayout& layout, int64_t rank) {
  GIMBAL_CHECK(rank >= 0 && rank < layout.world_size());
  const int64_t in_stage = rank % layout.stage_size();
  return {.stage = rank / layout.stage_size(),
          .rank_in_stage = in_stage,
          .dp_group = in_stage / layout.attention_tp,
          .attention_tp_rank = in_stage % layout.attention_tp,
          .expert_rank = in_stage / layout.expert_tp,
          .expert_tp_rank = in_stage % layout.expert_tp};
}

std::vector<int> attention_tp_group(const ParallelLayout& layout, int64_t rank) {
  const RankCoordinates at = coordinates_of(layout, rank);
  std::vector<int> ranks;
  for (int64_t i = 0; i < layout.attention_tp; ++i) ranks.push_back(static_cast<int>(rank - at.attention_tp_rank + i));
  return ranks;
}

std::vector<int> stage_group(const ParallelLayout& layout, int64_t stage) {
  std::vector<int> ranks;
  for (int64_t i = 0; i < layout.stage_size(); ++i) ranks.push_back(static_cast<int>(stage * layout.stage_size() + i));
  return ranks;
}

int64_t reporting_rank(const ParallelLayout& layout, int64_t dp_group) {
  return (layout.num_stages - 1) * layout.stage_size() + dp_group * layout.attention_tp;
}

}  // namespace gimbal
