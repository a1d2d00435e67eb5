// ParallelLayout: how ranks share one model. A value; groups, weights and steps of every rank are derived from it.
//
//   world = num_stages * stage_size,  stage_size = attention_dp * attention_tp = expert_parallel * expert_tp
// Names: pp<N> stages, dp<N> attention data parallel, tp<N> attention tensor parallel, ep<N> expert parallel,
// tep<N> = attention tp N with experts on N ranks and exchange none, single = one rank. Parts combine: pp2tp4, pp2ep4,
// tp4ep2 (attention dp2 x tp4, experts ep2 x tp4), dp2tp4ep8. Suffixes change a default: ":none" ":direct" ":mpi"
// exchange, ":normal" ":low_latency" mode, ":dense1" whole dense layers on every rank, ":layers5,3" layers per stage.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gimbal {

// How tokens meet the experts of other ranks.
enum class ExchangeKind : uint8_t {
  kNone,    // every rank of the stage sees every token, partial sums are added up
  kDirect,  // tokens travel through memory that the ranks share
  kMpi,     // tokens travel in MPI messages
};

enum class ExchangeMode : uint8_t {
  kAuto,        // any prompt token in the step: normal; decode only: low latency
  kNormal,      // counts first, then contiguous rows
  kLowLatency,  // fixed slots, one-sided, sized for the worst skew
};

struct ParallelLayout {
  int64_t num_stages = 1;
  int64_t attention_dp = 1;
  int64_t attention_tp = 1;
  int64_t expert_parallel = 1;
  int64_t expert_tp = 1;
  int64_t dense_tp = 1;  // ranks that share a dense layer or shared expert: 1 or attention_tp
  ExchangeKind exchange = ExchangeKind::kNone;
  ExchangeMode mode = ExchangeMode::kAuto;     // only with an exchange other than none
  std::vector<int64_t> layers_per_stage = {};  // [num_stages]; empty: even by cost

  int64_t stage_size() const { return attention_dp * attention_tp; }
  int64_t world_size() const { return num_stages * stage_size(); }
  bool is_single() const { return world_size() == 1; }
  // Bitwise equal to one rank: no sum is split over ranks.
  bool is_bitwise() const {
    return attention_tp == 1 && expert_tp == 1 && (expert_parallel == 1 || exchange != ExchangeKind::kNone);
  }
  bool operator==(const ParallelLayout&) const = default;
};

// The most ranks of a layout; a bound for arithmetic and messages, not a promise.
inline constexpr int64_t kMostRanks = 4096;

// Reads a name. Refused with the part that is wrong and the grammar; the product need not fit a model yet.
Result<ParallelLayout> parse_layout(std::string_view name);

// The canonical name; parse_layout(layout_name(x)) == x for every layout whose equations hold.
std::string layout_name(const ParallelLayout& layout);

std::string_view name_of(ExchangeKind kind);
std::string_view name_of(ExchangeMode mode);

// "8 layers: 5,3" of --pp-layer-partition; every part a whole number.
Result<std::vector<int64_t>> parse_layer_partition(std::string_view text);

}  // namespace gimbal
