#include "model/deepseek_v3/decoder.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "model/deepseek_v3/dense_mlp.h"
#include "model/deepseek_v3/mla_attention.h"
#include "model/deepseek_v3/moe_layer.h"
#include "ops/embedding.h"
#include "ops/matmul.h"
#include "ops/residual_add.h"
#include "ops/rms_norm.h"

namespace gimbal {
namespace {

// Values per row of every buffer of the workspace; the one place that knows their sizes.
struct WorkspaceWidths {
  int64_t hidden, query_latent, queries, latent, attended, dense, router, experts, expert_intermediate;
};

WorkspaceWidths widths_of(const ModelConfig& config) {
  const int64_t shared = config.num_shared_experts * config.moe_intermediate_size;
  return {.hidden = config.hidden_size,
          .query_latent = config.q_lora_rank,
          .queries = config.num_attention_heads * config.qk_head_dim(),
          .latent = config.kv_cache_width(),
          .attended = config.num_attention_heads * config.v_head_dim,
          .dense = std::max(config.intermediate_size, shared),
          .router = config.num_experts,
          .experts = std::max<int64_t>(1, config.num_experts_per_token) * config.hidden_size,
          .expert_intermediate = config.num_experts_per_token * 2 * config.moe_intermediate_size};
}

void norm(const std::vector<float>& x, const std::vector<float>& weight, double epsilon, std::vector<float>& y,
          const OpContext& context) {
  const auto columns = static_cast<int64_t>(weight.size());
  rms_norm({.x = x.data(),
            .x_stride = columns,
            .weight = weight.data(),
            .y = y.data(),
            .y_stride = columns,
            .num_rows = static_cast<int64_t>(x.size()) / columns,
            .num_columns = columns,
            .epsilon = epsilon},
           context);
}

}  // namespace

Decoder::Decoder(const ModelConfig& config, const DecoderWeights& weights, const DecoderContext& context,
                 double latent_norm_eps)
    : config_(config),
      weights_(weights),
      context_(context),
      latent_norm_eps_(latent_norm_eps),
      attention_shape_{.num_heads = config.num_attention_heads,
                       .nope_dim = config.qk_nope_head_dim,
                       .rope_dim = config.qk_rope_head_dim,
                       .value_dim = config.v_head_dim,
                       .latent_dim = config.kv_lora_rank,
                       .softmax_scale = attention_softmax_scale(config)},
      frequencies_(rope_frequencies(config)),
      amplitude_(rope_amplitude(config)) {}

uint64_t Decoder::workspace_bytes(const ModelConfig& config, int64_t num_rows) {
  const WorkspaceWidths w = widths_of(config);
  const int64_t values_per_row = 3 * w.hidden + w.query_latent + w.queries + w.latent + w.attended + 2 * w.dense +
                                 w.router + 2 * w.experts + w.expert_intermediate;
  // Dimensions may be as large as a config allows: a sum beyond 64 bits counts as the largest, which fits nowhere.
  uint64_t bytes = 0;
  const bool is_too_large = __builtin_mul_overflow(static_cast<uint64_t>(values_per_row) * sizeof(float),
                                                   static_cast<uint64_t>(num_rows), &bytes);
  return is_too_large ? std::numeric_limits<uint64_t>::max() / 4 : bytes;
}

void Decoder::prepare(const ForwardBatch& batch) {
  const WorkspaceWidths w = widths_of(config_);
  const auto resize = [&](std::vector<float>& buffer, int64_t width) {
    buffer.resize(static_cast<size_t>(batch.num_rows() * width));
  };
  for (std::vector<float>* buffer : {&workspace_.hidden, &workspace_.normed, &workspace_.block_output})
    resize(*buffer, w.hidden);
  resize(workspace_.query_latent, w.query_latent);
  resize(workspace_.queries, w.queries);
  resize(workspace_.latent, w.latent);
  resize(workspace_.attended, w.attended);
  resize(workspace_.gate, w.dense);
  resize(workspace_.up, w.dense);
  resize(workspace_.router_scores, w.router);
  resize(workspace_.expert_rows, w.experts);
  resize(workspace_.expert_output, w.experts);
  resize(workspace_.expert_intermediate, w.expert_intermediate);
  make_rotation_table(batch.positions, frequencies_, amplitude_, workspace_.rotation);
}

void Decoder::add_block_output(int64_t num_rows) {
  residual_add(
      {.x = workspace_.hidden.data(), .y = workspace_.block_output.data(), .count = num_rows * config_.hidden_size},
      context_.ops);
}

void Decoder::forward(const ForwardBatch& batch, KvStorage& cache, float* logits, const HiddenObserver& observer) {
  GIMBAL_CHECK_EQ(batch.token_ids.size(), batch.positions.size());
  const int64_t num_rows = batch.num_rows();
  prepare(batch);
  embedding({.ids = batch.token_ids, .table = weights_.embedding, .y = workspace_.hidden.data()}, context_.ops);
  if (observer) observer(0, workspace_.hidden);
  for (int64_t index = 0; index < config_.num_layers; ++index) {
    const LayerWeights& layer = weights_.layers[static_cast<size_t>(index)];
    norm(workspace_.hidden, layer.attention.input_norm, config_.rms_norm_eps, workspace_.normed, context_.ops);
    mla_attention_layer({.weights = &layer.attention,
                         .shape = attention_shape_,
                         .latent_norm_eps = latent_norm_eps_,
                         .layer = index,
                         .batch = &batch,
                         .cache = &cache},
                        context_, workspace_);
    add_block_output(num_rows);
    norm(workspace_.hidden, layer.post_attention_norm, config_.rms_norm_eps, workspace_.normed, context_.ops);
    if (layer.moe) {
      moe_layer(*layer.moe, config_, num_rows, context_, workspace_);
    } else {
      dense_mlp(*layer.dense, num_rows, context_.ops, workspace_, workspace_.block_output.data());
    }
    add_block_output(num_rows);
    if (observer) observer(index + 1, workspace_.hidden);
  }
  compute_logits(batch, logits, observer);
}

void Decoder::compute_logits(const ForwardBatch& batch, float* logits, const HiddenObserver& observer) {
  const int64_t hidden_size = config_.hidden_size;
  const auto num_logit_rows = static_cast<int64_t>(batch.logit_rows.size());
  if (num_logit_rows == 0) return;
  std::vector<float> rows(static_cast<size_t>(num_logit_rows * hidden_size));
  for (int64_t i = 0; i < num_logit_rows; ++i) {
    const float* source = workspace_.hidden.data() + batch.logit_rows[static_cast<size_t>(i)] * hidden_size;
    std::copy(source, source + hidden_size, rows.data() + i * hidden_size);
  }
  norm(rows, weights_.final_norm, config_.rms_norm_eps, rows, context_.ops);
  if (observer) observer(config_.num_layers + 1, rows);
  matmul({.x = rows.data(),
          .num_rows = num_logit_rows,
          .x_stride = hidden_size,
          .weight = weights_.output_head,
          .y = logits,
          .y_stride = config_.vocab_size},
         context_.ops);
}

}  // namespace gimbal
