// dense_mlp: y = down(silu(gate x) * up x), for dense layers and for the shared expert.
#pragma once

#include <cstdint>

#include "model/deepseek_v3/decoder.h"

namespace gimbal {

struct DenseMlpArgs {
  const DenseMlpWeights* weights = nullptr;  // whole, or the slices of a dense tensor-parallel rank: y is a partial sum
  const float* x = nullptr;                  // [num_rows][hidden_size]
  int64_t num_rows = 0;
  float* y = nullptr;  // [num_rows][hidden_size]; must not overlap x
};

// Uses workspace.gate and workspace.up.
void dense_mlp(const DenseMlpArgs& args, const OpContext& context, DecoderWorkspace& workspace);

}  // namespace gimbal
