#include "parallel/expert_balancer.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.h"

namespace gimbal {
namespace {

// Loads are integers, so that ties fall alike on every machine: tokens in units of 2^-32. A load has at most 96 bits,
// a sum over the slots of a rank at most 127.
using Load = unsigned __int128;
constexpr int kFractionBits = 32;

Load load_per_copy(uint64_t count, uint64_t copies) { return (Load{count} << kFractionBits) / copies; }

// Copies of each expert: one, and the redundant ones where a copy carries most.
std::vector<uint64_t> choose_copies(std::span<const uint64_t> counts, int64_t num_redundant) {
  std::vector<uint64_t> copies(counts.size(), 1);
  for (int64_t i = 0; i < num_redundant; ++i) {
    size_t heaviest = 0;
    for (size_t expert = 1; expert < counts.size(); ++expert) {
      // count / copies compared by cross multiplication: exact
      if (Load{counts[expert]} * copies[heaviest] > Load{counts[heaviest]} * copies[expert]) heaviest = expert;
    }
    ++copies[heaviest];
  }
  return copies;
}

struct RankContents {
  Load load = 0;
  std::vector<int32_t> experts;

  bool holds(int32_t expert) const { return std::find(experts.begin(), experts.end(), expert) != experts.end(); }
};

// The rank for one more copy of `expert`; at least one rank has room.
RankContents& choose_rank(std::vector<RankContents>& ranks, size_t slots_per_rank, int32_t expert) {
  RankContents* best = nullptr;
  bool best_holds = false;
  for (RankContents& rank : ranks) {
    if (rank.experts.size() == slots_per_rank) continue;
    const bool holds = rank.holds(expert);
    if (best == nullptr || std::pair(holds, rank.load) < std::pair(best_holds, best->load)) {
      best = &rank;
      best_holds = holds;
    }
  }
  GIMBAL_CHECK(best != nullptr);
  return *best;
}

std::vector<int32_t> balance_layer(const ExpertPlacementShape& shape, std::span<const uint64_t> counts) {
  const std::vector<uint64_t> copies = choose_copies(counts, shape.num_redundant);
  std::vector<std::pair<Load, int32_t>> order;  // [num_experts] load per copy, expert
  for (size_t expert = 0; expert < counts.size(); ++expert) {
    order.emplace_back(load_per_copy(counts[expert], copies[expert]), static_cast<int32_t>(expert));
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });

  std::vector<RankContents> ranks(static_cast<size_t>(shape.num_ranks));
  for (const auto& [load, expert] : order) {
    for (uint64_t copy = 0; copy < copies[static_cast<size_t>(expert)]; ++copy) {
      RankContents& rank = choose_rank(ranks, static_cast<size_t>(shape.slots_per_rank()), expert);
      rank.load += load;
      rank.experts.push_back(expert);
    }
  }
  std::vector<int32_t> slots;
  for (RankContents& rank : ranks) {
    std::sort(rank.experts.begin(), rank.experts.end());
    slots.insert(slots.end(), rank.experts.begin(), rank.experts.end());
  }
  return slots;
}

}  // namespace

ExpertPlacement balance_experts(const ExpertPlacementShape& shape,
                                const std::vector<std::vector<uint64_t>>& logical_count) {
  GIMBAL_CHECK_EQ(logical_count.size(), static_cast<size_t>(shape.num_layers));
  const ExpertPlacement trivial = ExpertPlacement::trivial(shape);
  std::vector<std::vector<int32_t>> slot_experts;
  for (int64_t layer = 0; layer < shape.num_layers; ++layer) {
    const std::vector<uint64_t>& counts = logical_count[static_cast<size_t>(layer)];
    GIMBAL_CHECK_EQ(counts.size(), static_cast<size_t>(shape.num_experts));
    if (std::any_of(counts.begin(), counts.end(), [](uint64_t count) { return count > 0; })) {
      slot_experts.push_back(balance_layer(shape, counts));
      continue;
    }
    std::vector<int32_t>& slots = slot_experts.emplace_back();
    for (int64_t rank = 0; rank < shape.num_ranks; ++rank) {
      const std::span<const int32_t> experts = trivial.experts_of(layer, rank);
      slots.insert(slots.end(), experts.begin(), experts.end());
    }
  }
  Result<ExpertPlacement> placement = ExpertPlacement::from_slots(shape, std::move(slot_experts));
  GIMBAL_CHECK(placement.has_value());
  return std::move(*placement);
}

double load_imbalance(const ExpertPlacement& placement, std::span<const uint64_t> logical_count, int64_t layer) {
  const ExpertPlacementShape& shape = placement.shape();
  GIMBAL_CHECK_EQ(logical_count.size(), static_cast<size_t>(shape.num_experts));
  double total = 0.0;
  std::vector<double> loads(static_cast<size_t>(shape.num_ranks), 0.0);
  for (int64_t expert = 0; expert < shape.num_experts; ++expert) {
    const auto count = static_cast<double>(logical_count[static_cast<size_t>(expert)]);
    const std::span<const int32_t> copies = placement.copies_of(layer, expert);
    total += count;
    for (const int32_t slot : copies) {
      loads[static_cast<size_t>(placement.rank_of_slot(slot))] += count / static_cast<double>(copies.size());
    }
  }
  if (total == 0.0) return 1.0;
  return *std::max_element(loads.begin(), loads.end()) * static_cast<double>(shape.num_ranks) / total;
}

}  // namespace gimbal
