// Rank map: where a rank stands in a layout, and which ranks form its groups. Pure functions of (layout, rank).
//
// World rank = stage * stage_size + r. Inside a stage, as SGLang orders them: attention dp outside, tp inside
// (r = dp_group * attention_tp + attention_tp_rank); expert parallel outside, expert tp inside
// (r = expert_rank * expert_tp + expert_tp_rank).
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/parallel_layout.h"

namespace gimbal {

struct RankCoordinates {
  int64_t stage = 0;
  int64_t rank_in_stage = 0;
  int64_t dp_group = 0;
  int64_t attention_tp_rank = 0;
  int64_t expert_rank = 0;
  int64_t expert_tp_rank = 0;
};

// [begin, end)
struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

// Part `index` of `count` things cut into `parts` contiguous pieces, sizes differing by one at most.
constexpr IndexRange even_part(int64_t count, int64_t parts, int64_t index) {
  return {count * index / parts, count * (index + 1) / parts};
}

RankCoordinates coordinates_of(const ParallelLayout& layout, int64_t rank);

// World ranks, rising; the position of a rank in the list is its rank in the group.
std::vector<int> attention_tp_group(const ParallelLayout& layout, int64_t rank);  // [attention_tp]
std::vector<int> stage_group(const ParallelLayout& layout, int64_t stage);        // [stage_size]

// The rank of `dp_group` whose results count: first of its attention group in the last stage.
int64_t reporting_rank(const ParallelLayout& layout, int64_t dp_group);

}  // namespace gimbal
