// moe_layer: route, dispatch, run_experts, combine, and the shared expert on top, for one rank.
//
// Which tokens a rank routes follows from the layout:
//   exchange none, one DP group    all rows of the stage are here: partial sums are added up over the stage
//   exchange none, more DP groups  rows are gathered over the stage first, sums scattered back to their owners
//   exchange direct or mpi         each rank routes its own piece of the group's rows and sends them to their experts
// The shared expert runs on the own piece, or as tensor-parallel slices on the group's rows (dense_tp > 1).
#pragma once

#include <cstdint>

#include "model/deepseek_v3/decoder.h"

namespace gimbal {

struct MoeLayerArgs {
  const MoeWeights* weights = nullptr;
  const ModelConfig* config = nullptr;
  int64_t layer = 0;  // of the rank's stage
  const ForwardBatch* batch = nullptr;
  RankContext* rank = nullptr;
};

// Reads workspace.normed [num_rows][hidden_size], writes workspace.block_output [num_rows][hidden_size]. Collective
// over the stage.
Status moe_layer(const MoeLayerArgs& args, const DecoderContext& context, DecoderWorkspace& workspace);

}  // namespace gimbal
