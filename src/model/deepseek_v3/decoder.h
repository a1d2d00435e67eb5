// Decoder: one rank's part of the forward pass of DeepSeek-V3 / Kimi K2.
//
//   h = embedding(ids); per layer: h += attention(norm(h)); h += feed_forward(norm(h)); logits = head(norm(h))
// The first stage embeds, later ones receive h, the last one computes logits. Inside a stage the ranks of an attention
// group hold the same rows; feed-forward layers meet the rest of the stage (moe_layer.h). docs/layouts.md has pictures.
// Activations are float32. A row's result depends on its own sequence only.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "attention/mla_attention_backend.h"
#include "kv_cache/kv_storage.h"
#include "model/deepseek_v3/weights.h"
#include "model/rank_context.h"
#include "model_config/model_config.h"
#include "moe/expert_runner/expert_runner.h"
#include "ops/op_context.h"
#include "ops/rotary.h"

namespace gimbal {

// The rows of one step that the rank's DP group computes, and what it must know of the other groups.
struct ForwardBatch {
  uint64_t step = 0;
  std::span<const int64_t> group_rows;           // [attention_dp] rows of every group; 0 for one without work
  bool is_low_latency = false;                   // the exchange's mode in this step, the same on every rank
  std::span<const int32_t> token_ids;            // [num_rows]
  std::span<const int64_t> positions;            // [num_rows]
  std::span<const AttentionSequence> sequences;  // in row order, together all rows
  std::span<const int64_t> logit_rows;           // rows whose logits are wanted
  int64_t num_rows() const { return static_cast<int64_t>(token_ids.size()); }
};

// Which backends compute, on which threads.
struct DecoderContext {
  OpContext ops;
  AttentionContext attention;
  ExpertRunnerContext experts;
};

// Called with stage 0 after the embedding, i after layer i-1 (1..num_layers), num_layers + 1 after the final norm of
// the logit rows.
using HiddenObserver = std::function<void(int64_t stage, std::span<const float> hidden)>;

// Scratch memory of a forward pass, kept between steps.
struct DecoderWorkspace {
  std::vector<float> hidden;               // [num_rows][hidden_size]
  std::vector<float> normed;               // [num_rows][hidden_size]
  std::vector<float> block_output;         // [num_rows][hidden_size]
  std::vector<float> query_latent;         // [num_rows][q_lora_rank]
  std::vector<float> queries;              // [num_rows][num_heads][nope + rope]
  std::vector<float> latent;               // [num_rows][kv_lora_rank + rope]
  std::vector<float> attended;             // [num_rows][num_heads][value]
  std::vector<float> gate;                 // [num_rows][widest dense intermediate]
  std::vector<float> up;                   // [num_rows][widest dense intermediate]
  std::vector<float> router_scores;        // [num_rows][num_experts]
  std::vector<float> stage_rows;           // [rows of the stage][hidden_size], exchange none with several DP groups
  std::vector<float> stage_output;         // [rows of the stage][hidden_size]
  std::vector<float> shared_output;        // [num_rows][hidden_size]
  std::vector<float> piece_output;         // [rows of this rank's piece][hidden_size]
  std::vector<float> expert_rows;          // [num_pairs][hidden_size]
  std::vector<float> expert_intermediate;  // [num_pairs][2 * moe_intermediate_size]
  std::vector<float> expert_output;        // [num_pairs][hidden_size]
  ReceivedTokens received;
  RotationTable rotation;
  TokenMajorBatch routed;
};

class Decoder {
 public:
  // `weights` and `rank` must outlive the decoder. `latent_norm_eps` is that of the q_a and kv_a norms.
  Decoder(const ModelConfig& config, const DecoderWeights& weights, RankContext* rank, const DecoderContext& context,
          double latent_norm_eps);

  // Writes the new tokens' keys to `cache` (layers of the stage) and, on the last stage, the logits
  // [logit_rows][vocab_size]. Collective: every rank of the world calls it with its part of the same step. An error
  // (a peer is stuck or gone) leaves the world unusable. Not thread-safe: one step at a time.
  Status forward(const ForwardBatch& batch, KvStorage& cache, float* logits, const HiddenObserver& observer = {});

  // Bytes of scratch memory of one rank for a step with `num_rows` rows in its group and `stage_rows` in its stage.
  static uint64_t workspace_bytes(const ModelConfig& config, const ParallelLayout& layout, int64_t num_rows,
                                  int64_t stage_rows);

 private:
  void prepare(const ForwardBatch& batch);
  Status embed(const ForwardBatch& batch);
  Status forward_layers(const ForwardBatch& batch, KvStorage& cache, const HiddenObserver& observer);
  Status feed_forward(int64_t layer_index, const ForwardBatch& batch);
  void add_block_output(int64_t num_rows);
  Status compute_logits(const ForwardBatch& batch, float* logits, const HiddenObserver& observer);
  Status head(std::span<const float> rows, int64_t num_rows, float* logits);

  ModelConfig config_;
  const DecoderWeights& weights_;
  RankContext* rank_;  // not owned
  DecoderContext context_;
  double latent_norm_eps_;
  MlaShape attention_shape_;  // of this rank's heads
  std::vector<double> frequencies_;
  double amplitude_;
  DecoderWorkspace workspace_;
};

}  // namespace gimbal
