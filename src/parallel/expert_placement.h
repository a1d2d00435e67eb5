// Expert placement: which physical slot holds which logical expert, and the files that say so.
//
// A logical expert is a row of the router; a physical slot is room for one expert's weights on one expert-parallel
// rank. Redundant slots hold further copies of experts that many tokens go to. Slot s lives on rank s / slots_per_rank.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace gimbal {

struct ExpertPlacementShape {
  int64_t num_layers = 0;  // all decoder layers, dense ones too
  int64_t num_experts = 0;
  int64_t num_redundant = 0;
  int64_t num_ranks = 1;  // expert parallel; divides num_slots

  int64_t num_slots() const { return num_experts + num_redundant; }
  int64_t slots_per_rank() const { return num_slots() / num_ranks; }
  bool operator==(const ExpertPlacementShape&) const = default;
};

// A value. Every layer has a row; those of dense layers are well formed and mean nothing.
class ExpertPlacement {
 public:
  ExpertPlacement() = default;

  // In all layers slot s holds expert s % num_experts.
  static ExpertPlacement trivial(const ExpertPlacementShape& shape);

  // `slot_experts` [num_layers][num_slots] gives the logical expert of each slot. Wrong counts, an id out of range or
  // an expert without any slot: Error::invalid that names layer and slot or expert, what is required and what was
  // found.
  static Result<ExpertPlacement> from_slots(const ExpertPlacementShape& shape,
                                            std::vector<std::vector<int32_t>> slot_experts);

  const ExpertPlacementShape& shape() const { return shape_; }

  // [slots_per_rank] logical experts in slot order. Valid while the placement lives, as are the copies.
  std::span<const int32_t> experts_of(int64_t layer, int64_t rank) const;

  // The slots that hold the expert, rising, never empty.
  std::span<const int32_t> copies_of(int64_t layer, int64_t expert) const;

  int64_t rank_of_slot(int32_t slot) const { return slot / shape_.slots_per_rank(); }

  bool operator==(const ExpertPlacement&) const = default;

 private:
  // Rows that are known to be well formed.
  ExpertPlacement(const ExpertPlacementShape& shape, std::vector<std::vector<int32_t>> slot_experts);

  ExpertPlacementShape shape_;
  std::vector<std::vector<int32_t>> slot_experts_;  // [num_layers][num_slots] expert of each slot
  std::vector<int32_t> copies_;                     // [num_layers, num_slots] slots, by expert and then rising
  std::vector<int32_t> copies_begin_;  // [num_layers, num_experts + 1] where the copies of an expert begin in its layer
};

// Reads a JSON object with exactly one of
//   "physical_to_logical_map" [num_layers][num_slots]: the expert of each slot, or
//   "logical_count" [num_layers][num_experts] or [samples][num_layers][num_experts]: how many tokens went to each
//     expert, as finite numbers >= 0; samples are added up and balance_experts chooses the placement.
// Other keys are ignored. Only ratios of counts within a layer matter: a layer with fractions or with counts of 2^53
// and more is scaled by a power of two and rounded. Anything else: Error::invalid that names file, key, index, what is
// required and what was found.
Result<ExpertPlacement> read_expert_placement(const std::filesystem::path& file, const ExpertPlacementShape& shape);

// {"physical_to_logical_map": [num_layers][num_slots]}, one layer a line, for read_expert_placement.
std::string placement_json(const ExpertPlacement& placement);

// {"logical_count": [num_layers][num_experts]}, one layer a line, for read_expert_placement.
std::string expert_load_json(const std::vector<std::vector<uint64_t>>& logical_count);

}  // namespace gimbal
