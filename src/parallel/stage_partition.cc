#include "parallel/stage_partition.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace gimbal {
namespace {

// best[s][n]: the least value of `combine` over ways to give the first n layers to the first s stages.
class PartitionTable {
 public:
  PartitionTable(const LayerCosts& costs, int64_t num_stages)
      : costs_(costs), num_stages_(num_stages), prefix_(costs.layers.size() + 1, 0) {
    for (size_t i = 0; i < costs.layers.size(); ++i) prefix_[i + 1] = prefix_[i] + static_cast<double>(costs.layers[i]);
  }

  double least_maximum() const {
    std::vector<double> best = row_for_first_stage();
    for (int64_t stage = 1; stage < num_stages_; ++stage) {
      std::vector<double> next(best.size(), kInfinity);
      for (size_t end = 0; end < best.size(); ++end) {
        for (size_t begin = 0; begin < end; ++begin)
          next[end] = std::min(next[end], std::max(best[begin], cost(begin, end)));
      }
      best = std::move(next);
    }
    return best.back();
  }

  std::vector<int64_t> least_squares(double most) const {
    const size_t num_layers = costs_.layers.size();
    std::vector<std::vector<double>> best(static_cast<size_t>(num_stages_) + 1,
                                          std::vector<double>(num_layers + 1, kInfinity));
    std::vector<std::vector<size_t>> begin_of(best.size(), std::vector<size_t>(num_layers + 1, 0));
    best[0][0] = 0.0;
    for (size_t stage = 1; stage < best.size(); ++stage) {
      for (size_t end = 1; end <= num_layers; ++end) {
        for (size_t begin = 0; begin < end; ++begin) {
          const double part = cost(begin, end);
          const double sum = best[stage - 1][begin] + part * part;
          if (part > most || sum >= best[stage][end]) continue;
          best[stage][end] = sum;
          begin_of[stage][end] = begin;
        }
      }
    }
    std::vector<int64_t> sizes(static_cast<size_t>(num_stages_));
    size_t end = num_layers;
    for (size_t stage = sizes.size(); stage > 0; --stage) {
      const size_t begin = begin_of[stage][end];
      sizes[stage - 1] = static_cast<int64_t>(end - begin);
      end = begin;
    }
    return sizes;
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  double cost(size_t begin, size_t end) const {
    double sum = prefix_[end] - prefix_[begin];
    if (begin == 0) sum += static_cast<double>(costs_.before_first);
    if (end == costs_.layers.size()) sum += static_cast<double>(costs_.after_last);
    return sum;
  }
  std::vector<double> row_for_first_stage() const {
    std::vector<double> row(prefix_.size(), kInfinity);
    for (size_t end = 1; end < row.size(); ++end) row[end] = cost(0, end);
    return row;
  }

  const LayerCosts& costs_;
  int64_t num_stages_;
  std::vector<double> prefix_;  // [num_layers + 1] sums of layer costs
};

}  // namespace

LayerCosts layer_costs(const WeightPlan& plan, int64_t num_layers) {
  LayerCosts costs{.layers = std::vector<uint64_t>(static_cast<size_t>(num_layers), 0)};
  uint64_t embedding = 0;
  for (const PlannedWeight& weight : plan.weights) {
    if (weight.layer >= 0) {
      costs.layers[static_cast<size_t>(weight.layer)] += weight.bytes();
    } else if (weight.role == WeightRole::kEmbedding) {
      embedding = weight.bytes();
    } else {
      costs.after_last += weight.bytes();
    }
  }
  costs.before_first = embedding;
  const bool has_head = std::any_of(plan.weights.begin(), plan.weights.end(),
                                    [](const PlannedWeight& weight) { return weight.role == WeightRole::kOutputHead; });
  if (!has_head) costs.after_last += embedding;  // tied: the last stage holds the embedding too
  return costs;
}

std::vector<int64_t> even_partition(const LayerCosts& costs, int64_t num_stages) {
  GIMBAL_CHECK(num_stages >= 1 && num_stages <= static_cast<int64_t>(costs.layers.size()));
  const PartitionTable table(costs, num_stages);
  return table.least_squares(table.least_maximum());
}

std::vector<IndexRange> stage_layers(const ParallelLayout& layout, const LayerCosts& costs) {
  const std::vector<int64_t> sizes =
      layout.layers_per_stage.empty() ? even_partition(costs, layout.num_stages) : layout.layers_per_stage;
  std::vector<IndexRange> ranges;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    ranges.push_back({begin, begin + size});
    begin += size;
  }
  return ranges;
}

}  // namespace gimbal
