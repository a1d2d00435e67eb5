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
#include "parallel/rank_weight_plan.h"

namespace gimbal {
namespace {

// Values per row of the buffers of one rank; the one place that knows their sizes.
struct WorkspaceWidths {
  int64_t hidden, query_latent, queries, latent, attended, dense, router, expert_intermediate;
};

WorkspaceWidths widths_of(const ModelConfig& config, const ParallelLayout& layout) {
  const int64_t shared = config.num_shared_experts * config.moe_intermediate_size;
  return {.hidden = config.hidden_size,
          .query_latent = config.q_lora_rank,
          .queries = config.num_attention_heads / layout.attention_tp * config.qk_head_dim(),
          .latent = config.kv_cache_width(),
          .attended = config.num_attention_heads / layout.attention_tp * config.v_head_dim,
          .dense = std::max(config.intermediate_size, shared) / layout.dense_tp,
          .router = config.num_experts,
          .expert_intermediate = 2 * config.moe_intermediate_size / layout.expert_tp};
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

Decoder::Decoder(const ModelConfig& config, const DecoderWeights& weights, RankContext* rank,
                 const DecoderContext& context, double latent_norm_eps)
    : config_(config),
      weights_(weights),
      rank_(rank),
      context_(context),
      latent_norm_eps_(latent_norm_eps),
      attention_shape_{.num_heads = config.num_attention_heads / rank->layout.attention_tp,
                       .nope_dim = config.qk_nope_head_dim,
                       .rope_dim = config.qk_rope_head_dim,
                       .value_dim = config.v_head_dim,
                       .latent_dim = config.kv_lora_rank,
                       .softmax_scale = attention_softmax_scale(config)},
      frequencies_(rope_frequencies(config)),
      amplitude_(rope_amplitude(config)) {}

uint64_t Decoder::workspace_bytes(const ModelConfig& config, const ParallelLayout& layout, int64_t num_rows,
                                  int64_t stage_rows) {
  const WorkspaceWidths w = widths_of(config, layout);
  const int64_t values_per_row =
      5 * w.hidden + w.query_latent + w.queries + w.latent + w.attended + 2 * w.dense + w.router;
  // Routing may be twice as skewed as even before a rank's expert buffers outgrow this share of the stage's pairs.
  const int64_t values_per_stage_row =
      (layout.stage_size() > 1 ? 3 * w.hidden : 0) +
      (2 * config.num_experts_per_token * (2 * w.hidden + w.expert_intermediate)) / (layout.stage_size() > 1 ? 1 : 2);
  // Dimensions may be as large as a config allows: a sum beyond 64 bits counts as the largest, which fits nowhere.
  const long double bytes =
      sizeof(float) * (static_cast<long double>(values_per_row) * static_cast<long double>(num_rows) +
                       static_cast<long double>(values_per_stage_row) * static_cast<long double>(stage_rows) /
                           static_cast<long double>(layout.stage_size()));
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max() / 4;
  return bytes > static_cast<long double>(kMost) ? kMost : static_cast<uint64_t>(bytes);
}

void Decoder::prepare(const ForwardBatch& batch) {
  const WorkspaceWidths w = widths_of(config_, rank_->layout);
  const auto resize = [&](std::vector<float>& buffer, int64_t width) {
    buffer.resize(static_cast<size_t>(batch.num_rows() * width));
  };
  for (std::vector<float>* buffer :
       {&workspace_.hidden, &workspace_.normed, &workspace_.block_output, &workspace_.shared_output})
    resize(*buffer, w.hidden);
  resize(workspace_.query_latent, w.query_latent);
  resize(workspace_.queries, w.queries);
  resize(workspace_.latent, w.latent);
  resize(workspace_.attended, w.attended);
  resize(workspace_.gate, w.dense);
  resize(workspace_.up, w.dense);
  make_rotation_table(batch.positions, frequencies_, amplitude_, workspace_.rotation);
}

void Decoder::add_block_output(int64_t num_rows) {
  residual_add(
      {.x = workspace_.hidden.data(), .y = workspace_.block_output.data(), .count = num_rows * config_.hidden_size},
      context_.ops);
}

Status Decoder::forward(const ForwardBatch& batch, KvStorage& cache, float* logits, const HiddenObserver& observer) {
  GIMBAL_CHECK_EQ(batch.token_ids.size(), batch.positions.size());
  GIMBAL_CHECK_EQ(batch.group_rows.size(), static_cast<size_t>(rank_->layout.attention_dp));
  GIMBAL_CHECK_EQ(batch.group_rows[static_cast<size_t>(rank_->at.dp_group)], batch.num_rows());
  DeviceComm& world = *rank_->comms.world;
  world.state().step.store(batch.step, std::memory_order_relaxed);
  world.state().layer.store(-1, std::memory_order_relaxed);
  prepare(batch);
  const int stage_size = static_cast<int>(rank_->layout.stage_size());
  if (rank_->is_first_stage()) {
    GIMBAL_RETURN_IF_ERROR(embed(batch));
    if (observer) observer(0, workspace_.hidden);
  } else if (batch.num_rows() > 0) {
    GIMBAL_RETURN_IF_ERROR(world.receive(workspace_.hidden, world.rank() - stage_size));
  }
  GIMBAL_RETURN_IF_ERROR(forward_layers(batch, cache, observer));
  world.state().layer.store(-1, std::memory_order_relaxed);
  if (rank_->is_last_stage()) return compute_logits(batch, logits, observer);
  if (batch.num_rows() == 0) return {};
  return world.send(workspace_.hidden, world.rank() + stage_size);
}

// Every rank of the group looks up the ids of its part of the vocabulary; the sum has one addend that is not zero.
Status Decoder::embed(const ForwardBatch& batch) {
  embedding({.ids = batch.token_ids,
             .first_id = vocabulary_part(config_, rank_->layout, rank_->at.attention_tp_rank).begin,
             .table = weights_.embedding,
             .y = workspace_.hidden.data()},
            context_.ops);
  return rank_->comms.attention_tp->all_reduce(workspace_.hidden);
}

Status Decoder::forward_layers(const ForwardBatch& batch, KvStorage& cache, const HiddenObserver& observer) {
  const int64_t num_rows = batch.num_rows();
  for (int64_t index = 0; index < rank_->layers.size(); ++index) {
    const int64_t global_index = rank_->layers.begin + index;
    rank_->comms.world->state().layer.store(global_index, std::memory_order_relaxed);
    const LayerWeights& layer = weights_.layers[static_cast<size_t>(index)];
    norm(workspace_.hidden, layer.attention.input_norm, config_.rms_norm_eps, workspace_.normed, context_.ops);
    {
      const ComponentTimer timer(rank_->times.attention_s);
      mla_attention_layer({.weights = &layer.attention,
                           .shape = attention_shape_,
                           .latent_norm_eps = latent_norm_eps_,
                           .layer = index,
                           .batch = &batch,
                           .cache = &cache},
                          context_, workspace_);
    }
    // Each rank has summed over its own heads.
    GIMBAL_RETURN_IF_ERROR(rank_->comms.attention_tp->all_reduce(workspace_.block_output));
    add_block_output(num_rows);
    norm(workspace_.hidden, layer.post_attention_norm, config_.rms_norm_eps, workspace_.normed, context_.ops);
    GIMBAL_RETURN_IF_ERROR(feed_forward(index, batch));
    add_block_output(num_rows);
    if (observer) observer(global_index + 1, workspace_.hidden);
  }
  return {};
}

Status Decoder::feed_forward(int64_t layer_index, const ForwardBatch& batch) {
  const ComponentTimer timer(rank_->times.feed_forward_s);
  const LayerWeights& layer = weights_.layers[static_cast<size_t>(layer_index)];
  if (layer.moe) {
    return moe_layer({.weights = &*layer.moe, .config = &config_, .layer = layer_index, .batch = &batch, .rank = rank_},
                     context_, workspace_);
  }
  dense_mlp({.weights = &*layer.dense,
             .x = workspace_.normed.data(),
             .num_rows = batch.num_rows(),
             .y = workspace_.block_output.data()},
            context_.ops, workspace_);
  if (rank_->layout.dense_tp == 1) return {};
  return rank_->comms.attention_tp->all_reduce(workspace_.block_output);
}

Status Decoder::compute_logits(const ForwardBatch& batch, float* logits, const HiddenObserver& observer) {
  const int64_t hidden_size = config_.hidden_size;
  const auto num_logit_rows = static_cast<int64_t>(batch.logit_rows.size());
  if (num_logit_rows == 0) return {};
  std::vector<float> rows(static_cast<size_t>(num_logit_rows * hidden_size));
  for (int64_t i = 0; i < num_logit_rows; ++i) {
    const float* source = workspace_.hidden.data() + batch.logit_rows[static_cast<size_t>(i)] * hidden_size;
    std::copy(source, source + hidden_size, rows.data() + i * hidden_size);
  }
  norm(rows, weights_.final_norm, config_.rms_norm_eps, rows, context_.ops);
  if (observer) observer(config_.num_layers + 1, rows);
  return head(rows, num_logit_rows, logits);
}

// Every rank of the group scores its part of the vocabulary; the parts are put side by side.
Status Decoder::head(std::span<const float> rows, int64_t num_rows, float* logits) {
  const ComponentTimer timer(rank_->times.head_s);
  const int64_t part_size = weights_.output_head.rows;
  MatmulArgs product{.x = rows.data(),
                     .num_rows = num_rows,
                     .x_stride = config_.hidden_size,
                     .weight = weights_.output_head,
                     .y = logits,
                     .y_stride = config_.vocab_size};
  DeviceComm& group = *rank_->comms.attention_tp;
  if (group.size() == 1) return matmul(product, context_.ops), Status{};
  std::vector<float> own(static_cast<size_t>(num_rows * part_size));
  product.y = own.data();
  product.y_stride = part_size;
  matmul(product, context_.ops);
  std::vector<int64_t> counts;
  for (int64_t rank = 0; rank < rank_->layout.attention_tp; ++rank)
    counts.push_back(num_rows * vocabulary_part(config_, rank_->layout, rank).size());
  std::vector<float> all(static_cast<size_t>(num_rows * config_.vocab_size));
  GIMBAL_RETURN_IF_ERROR(group.all_gather(own, counts, all));
  const float* source = all.data();
  for (int64_t rank = 0; rank < rank_->layout.attention_tp; ++rank) {
    const IndexRange part = vocabulary_part(config_, rank_->layout, rank);
    for (int64_t row = 0; row < num_rows; ++row, source += part.size())
      std::copy(source, source + part.size(), logits + row * config_.vocab_size + part.begin);
  }
  return {};
}

}  // namespace gimbal
