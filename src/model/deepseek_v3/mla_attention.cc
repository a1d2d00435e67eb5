#include "model/deepseek_v3/mla_attention.h"

#include <algorithm>

#include "ops/matmul.h"
#include "ops/rms_norm.h"

namespace gimbal {
namespace {

void project(const WeightMatrix& weight, const std::vector<float>& x, std::vector<float>& y, int64_t num_rows,
             const OpContext& context) {
  matmul({.x = x.data(),
          .num_rows = num_rows,
          .x_stride = weight.columns,
          .weight = weight,
          .y = y.data(),
          .y_stride = weight.rows},
         context);
}

// Normalizes the first `num_columns` of every row in place.
void norm_rows(std::vector<float>& x, int64_t stride, const std::vector<float>& weight, double epsilon,
               const OpContext& context) {
  rms_norm({.x = x.data(),
            .x_stride = stride,
            .weight = weight.data(),
            .y = x.data(),
            .y_stride = stride,
            .num_rows = static_cast<int64_t>(x.size()) / stride,
            .num_columns = static_cast<int64_t>(weight.size()),
            .epsilon = epsilon},
           context);
}

// Copies each row's latent and rope key to its place in the pages.
void store_keys(const MlaLayerArgs& args, const std::vector<float>& latent) {
  const int64_t width = args.shape.latent_dim + args.shape.rope_dim;
  for (const AttentionSequence& sequence : args.batch->sequences) {
    for (int64_t row = 0; row < sequence.num_rows; ++row) {
      const float* source = latent.data() + (sequence.first_row + row) * width;
      std::copy(source, source + width, args.cache->token(args.layer, sequence.pages, sequence.first_position + row));
    }
  }
}

}  // namespace

void mla_attention_layer(const MlaLayerArgs& args, const DecoderContext& context, DecoderWorkspace& workspace) {
  const MlaWeights& weights = *args.weights;
  const MlaShape& shape = args.shape;
  const int64_t num_rows = args.batch->num_rows();
  const OpContext& ops = context.ops;

  project(weights.query_down, workspace.normed, workspace.query_latent, num_rows, ops);
  norm_rows(workspace.query_latent, weights.query_down.rows, weights.query_norm, args.latent_norm_eps, ops);
  project(weights.query_up, workspace.query_latent, workspace.queries, num_rows, ops);
  rotary({.x = workspace.queries.data() + shape.nope_dim,
          .num_rows = num_rows,
          .row_stride = shape.num_heads * shape.query_dim(),
          .num_heads = shape.num_heads,
          .head_stride = shape.query_dim(),
          .table = &workspace.rotation},
         ops);

  const int64_t width = shape.latent_dim + shape.rope_dim;
  project(weights.key_value_down, workspace.normed, workspace.latent, num_rows, ops);
  norm_rows(workspace.latent, width, weights.key_value_norm, args.latent_norm_eps,
            ops);  // the latent only, never the rope key
  rotary({.x = workspace.latent.data() + shape.latent_dim,
          .num_rows = num_rows,
          .row_stride = width,
          .num_heads = 1,
          .head_stride = width,
          .table = &workspace.rotation},
         ops);
  store_keys(args, workspace.latent);

  mla_attention({.shape = shape,
                 .queries = workspace.queries.data(),
                 .kv_up = weights.key_value_up,
                 .cache = args.cache,
                 .layer = args.layer,
                 .sequences = args.batch->sequences,
                 .output = workspace.attended.data()},
                context.attention);
  project(weights.output, workspace.attended, workspace.block_output, num_rows, ops);
}

}  // namespace gimbal
