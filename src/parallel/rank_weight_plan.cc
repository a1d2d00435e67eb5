#include "parallel/rank_weight_plan.h"

#include "base/check.h"
#include "parallel/stage_partition.h"
#include "quantization/weight_matrix.h"
#include "tensor/data_type.h"

namespace gimbal {
namespace {

class RankPlanBuilder {
 public:
  RankPlanBuilder(const RankPlanInputs& inputs, int64_t rank)
      : inputs_(inputs), layout_(*inputs.layout), at_(coordinates_of(*inputs.layout, rank)) {}

  RankWeightPlan build() {
    const LayerCosts costs = layer_costs(*inputs_.plan, inputs_.config->num_layers);
    plan_.layers = stage_layers(layout_, costs)[static_cast<size_t>(at_.stage)];
    for (const PlannedWeight& weight : inputs_.plan->weights) {
      if (!is_on_stage(weight)) continue;
      if (weight.expert >= 0) {
        add_expert(weight);
      } else {
        add(weight, slice_of(weight), -1);
      }
    }
    return std::move(plan_);
  }

 private:
  bool is_on_stage(const PlannedWeight& weight) const {
    const bool is_first = at_.stage == 0;
    const bool is_last = at_.stage + 1 == layout_.num_stages;
    switch (weight.role) {
      case WeightRole::kEmbedding:
        return is_first || (is_last && inputs_.config->tie_word_embeddings);
      case WeightRole::kOutputHead:
      case WeightRole::kFinalNorm:
        return is_last;
      default:
        return weight.layer >= plan_.layers.begin && weight.layer < plan_.layers.end;
    }
  }

  void add_expert(const PlannedWeight& weight) {
    const auto experts = inputs_.placement->experts_of(weight.layer, at_.expert_rank);
    for (size_t slot = 0; slot < experts.size(); ++slot) {
      if (experts[slot] == weight.expert) add(weight, slice_of(weight), static_cast<int32_t>(slot));
    }
  }

  static WeightSlice by_rows(const PlannedWeight& weight, IndexRange rows) {
    return {rows.begin, rows.end, 0, weight.columns};
  }
  static WeightSlice by_columns(const PlannedWeight& weight, IndexRange columns) {
    return {0, weight.rows, columns.begin, columns.end};
  }

  WeightSlice slice_of(const PlannedWeight& weight) const {
    const int64_t attention_rank = at_.attention_tp_rank;
    const int64_t dense_rank = layout_.dense_tp == 1 ? 0 : attention_rank;
    switch (weight.role) {
      case WeightRole::kEmbedding:
      case WeightRole::kOutputHead:
        return by_rows(weight, vocabulary_part(*inputs_.config, layout_, attention_rank));
      case WeightRole::kQueryUp:
      case WeightRole::kKeyValueUp:
        return by_rows(weight, even_part(weight.rows, layout_.attention_tp, attention_rank));
      case WeightRole::kAttentionOutput:
        return by_columns(weight, even_part(weight.columns, layout_.attention_tp, attention_rank));
      case WeightRole::kDenseGate:
      case WeightRole::kDenseUp:
      case WeightRole::kSharedGate:
      case WeightRole::kSharedUp:
        return by_rows(weight, even_part(weight.rows, layout_.dense_tp, dense_rank));
      case WeightRole::kDenseDown:
      case WeightRole::kSharedDown:
        return by_columns(weight, even_part(weight.columns, layout_.dense_tp, dense_rank));
      case WeightRole::kExpertGate:
      case WeightRole::kExpertUp:
        return by_rows(weight, even_part(weight.rows, layout_.expert_tp, at_.expert_tp_rank));
      case WeightRole::kExpertDown:
        return by_columns(weight, even_part(weight.columns, layout_.expert_tp, at_.expert_tp_rank));
      default:
        return {0, weight.rows, 0, weight.columns};
    }
  }

  uint64_t bytes_of(const PlannedWeight& weight, const WeightSlice& slice) const {
    if (weight.columns == 0) return weight.bytes();  // vectors are never cut
    WeightMatrix shape{.format = weight.format, .rows = weight.rows, .columns = weight.columns};
    if (weight.format == WeightFormat::kInt4Group) shape.group_size = inputs_.config->quantization.group_size;
    return slice_bytes(shape, slice);
  }

  void add(const PlannedWeight& weight, const WeightSlice& slice, int32_t local_slot) {
    const uint64_t bytes = bytes_of(weight, slice);
    plan_.total_bytes += bytes;
    plan_.weights.push_back({.weight = &weight,
                             .slice = slice,
                             .local_slot = local_slot,
                             .bytes = bytes,
                             .is_first_holder = is_first_holder(weight, local_slot)});
  }

  // Every rank of a stage holds a slice of what is no routed expert; a tied embedding is on two stages.
  bool is_first_holder(const PlannedWeight& weight, int32_t local_slot) const {
    if (weight.expert < 0) return at_.rank_in_stage == 0 && (weight.role != WeightRole::kEmbedding || at_.stage == 0);
    const int64_t slot = at_.expert_rank * inputs_.placement->shape().slots_per_rank() + local_slot;
    return at_.expert_tp_rank == 0 && inputs_.placement->copies_of(weight.layer, weight.expert).front() == slot;
  }

  const RankPlanInputs& inputs_;
  const ParallelLayout& layout_;
  RankCoordinates at_;
  RankWeightPlan plan_;
};

}  // namespace

RankWeightPlan make_rank_weight_plan(const RankPlanInputs& inputs, int64_t rank) {
  return RankPlanBuilder(inputs, rank).build();
}

}  // namespace gimbal
