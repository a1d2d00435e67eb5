// moe_layer: route, dispatch, run_experts, combine, and the shared expert on top.
#pragma once

#include <cstdint>

#include "model/deepseek_v3/decoder.h"

namespace gimbal {

// Reads workspace.normed [num_rows][hidden_size], writes workspace.block_output [num_rows][hidden_size].
void moe_layer(const MoeWeights& weights, const ModelConfig& config, int64_t num_rows, const DecoderContext& context,
               DecoderWorkspace& workspace);

}  // namespace gimbal
