// dense_mlp: y = down(silu(gate x) * up x), for dense layers and for the shared expert.
#pragma once

#include <cstdint>

#include "model/deepseek_v3/decoder.h"

namespace gimbal {

// Reads workspace.normed [num_rows][hidden_size], writes y [num_rows][hidden_size]; uses workspace.gate and
// workspace.up.
void dense_mlp(const DenseMlpWeights& weights, int64_t num_rows, const OpContext& context, DecoderWorkspace& workspace,
               float* y);

}  // namespace gimbal
