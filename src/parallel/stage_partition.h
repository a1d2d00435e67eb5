// Stage partition: which layers each pipeline stage computes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/parallel_layout.h"
#include "parallel/rank_map.h"
#include "parallel/weight_plan.h"

namespace gimbal {

// Costs in any one unit; here bytes of weights, which both memory and a decode step are made of.
struct LayerCosts {
  std::vector<uint64_t> layers;  // [num_layers]
  uint64_t before_first = 0;     // embedding
  uint64_t after_last = 0;       // final norm and output head
};

LayerCosts layer_costs(const WeightPlan& plan, int64_t num_layers);

// Contiguous parts, each with at least one layer, whose largest cost is as small as it can be; among those, the ones
// with the least sum of squares. num_stages must not exceed the layers.
std::vector<int64_t> even_partition(const LayerCosts& costs, int64_t num_stages);

// The layers of `stage`: as the layout says, or even by cost.
std::vector<IndexRange> stage_layers(const ParallelLayout& layout, const LayerCosts& costs);

}  // namespace gimbal
