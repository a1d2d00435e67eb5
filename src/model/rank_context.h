// RankContext: what one rank is: its place in the layout, its layers, its groups and its exchanges. Passed down, never
// global, so that any number of ranks and engines live in one process.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "comm/device_comm.h"
#include "comm/in_process_world.h"
#include "model/component_times.h"
#include "model_config/model_config.h"
#include "moe/exchange/copy_choice.h"
#include "moe/exchange/token_exchange.h"
#include "parallel/expert_placement.h"
#include "parallel/parallel_layout.h"
#include "parallel/rank_map.h"

namespace gimbal {

// The communicators of one rank.
struct RankComms {
  std::unique_ptr<CommState> state;          // of a process; threads use the world's. Outlives the rest
  std::unique_ptr<DeviceComm> world;         // hops between stages
  std::unique_ptr<DeviceComm> stage;         // experts
  std::unique_ptr<DeviceComm> attention_tp;  // ranks that share the rows of one DP group
};

// Owned by the rank's runner, used by the rank's thread only.
struct RankContext {
  int64_t rank = 0;
  ParallelLayout layout;
  RankCoordinates at;
  IndexRange layers;  // of the stage
  std::shared_ptr<const ExpertPlacement> placement;
  CopyChoice copy_choice;
  RankComms comms;
  std::unique_ptr<TokenExchange> exchange;              // mode normal, or none
  std::unique_ptr<TokenExchange> low_latency_exchange;  // nullptr: the layout has no low-latency steps
  // Tokens routed to each logical expert, counted once per token in the stage. [num stage layers][num_experts]
  std::vector<std::vector<uint64_t>> expert_load;
  ComponentTimes times = {};

  bool is_first_stage() const { return at.stage == 0; }
  bool is_last_stage() const { return at.stage + 1 == layout.num_stages; }
  // Row counts of the ranks of one attention group that holds `num_rows`: [attention_tp]
  std::vector<int64_t> piece_rows(int64_t num_rows) const;
};

struct RankContextInputs {
  const ModelConfig* config = nullptr;  // not owned
  ParallelLayout layout;
  std::shared_ptr<const ExpertPlacement> placement;
  int64_t rank = 0;
  IndexRange layers;
  int64_t low_latency_tokens = 0;  // slots per rank; 0: no low-latency exchange
  CopyChoiceKind copy_choice = CopyChoiceKind::kDynamic;
};

// Collective over the stage when there are low-latency windows to make.
Result<RankContext> make_rank_context(const RankContextInputs& inputs, RankComms comms);

// The context of the only rank of a model.
RankContext make_single_rank_context(const ModelConfig& config);

// Communicators of a rank of a thread world, for a layout.
RankComms make_thread_comms(InProcessWorld& world, const ParallelLayout& layout, int64_t rank);

// Shape of the expert placement of a layout.
ExpertPlacementShape placement_shape(const ModelConfig& config, const ParallelLayout& layout, int64_t num_redundant);

// Sizes of the token exchange of a layout.
ExchangeShape exchange_shape(const ModelConfig& config, const ParallelLayout& layout, int64_t slots_per_rank,
                             int64_t low_latency_tokens);

}  // namespace gimbal
