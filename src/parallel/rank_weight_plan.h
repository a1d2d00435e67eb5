// RankWeightPlan: which slice of which planned weight one rank of a layout holds, and its exact bytes. A pure function
// of (weight plan, config, layout, placement, rank); the loader, the memory plan and `plan` all read it.
//
// Attention tensor parallel: rows of q_b, kv_b by whole heads, columns of o; embedding and head by rows of the
// vocabulary. Dense tensor parallel: rows of gate and up, columns of down. Experts: whole experts by slot of the
// placement, their width cut by expert tp. Norms, router, q_a and kv_a (small) are replicated in the stage.
#pragma once

#include <cstdint>
#include <vector>

#include "model_config/model_config.h"
#include "parallel/expert_placement.h"
#include "parallel/parallel_layout.h"
#include "parallel/rank_map.h"
#include "parallel/weight_plan.h"
#include "quantization/weight_slice.h"

namespace gimbal {

struct RankWeight {
  const PlannedWeight* weight = nullptr;  // in the WeightPlan, which must outlive this
  WeightSlice slice;                      // of the matrix; of a vector only rows count
  int32_t local_slot = -1;                // routed experts: place among the rank's experts of that layer
  uint64_t bytes = 0;                     // data and scales
  bool is_first_holder = false;  // no lower rank holds a slice of it: what is done once per weight is done here
};

struct RankWeightPlan {
  IndexRange layers;                // of the stage
  std::vector<RankWeight> weights;  // in plan order; an expert with several slots here stands once per slot
  uint64_t total_bytes = 0;
};

// What a rank's share depends on besides its number.
struct RankPlanInputs {
  const WeightPlan* plan = nullptr;            // not owned
  const ModelConfig* config = nullptr;         // not owned
  const ParallelLayout* layout = nullptr;      // valid for the config
  const ExpertPlacement* placement = nullptr;  // shape: layout.expert_parallel ranks
};

RankWeightPlan make_rank_weight_plan(const RankPlanInputs& inputs, int64_t rank);

// Rows [begin, end) of the vocabulary that an attention-tp rank embeds and scores.
inline IndexRange vocabulary_part(const ModelConfig& config, const ParallelLayout& layout, int64_t attention_tp_rank) {
  return even_part(config.vocab_size, layout.attention_tp, attention_tp_rank);
}

}  // namespace gimbal
