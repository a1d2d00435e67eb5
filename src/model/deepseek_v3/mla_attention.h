// mla_attention: the attention block of one layer, from normed rows to the output projection.
#pragma once

#include <cstdint>

#include "model/deepseek_v3/decoder.h"

namespace gimbal {

struct MlaLayerArgs {
  const MlaWeights* weights = nullptr;
  MlaShape shape;
  double latent_norm_eps = 0;
  int64_t layer = 0;  // of the cache
  const ForwardBatch* batch = nullptr;
  KvStorage* cache = nullptr;
};

// Reads workspace.normed [num_rows][hidden_size], writes workspace.block_output and the rows' entries of the cache.
void mla_attention_layer(const MlaLayerArgs& args, const DecoderContext& context, DecoderWorkspace& workspace);

}  // namespace gimbal
