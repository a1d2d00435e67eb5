// Decoder: the forward pass of DeepSeek-V3 / Kimi K2 for one rank that holds everything.
//
//   h = embedding(ids); per layer: h += attention(norm(h)); h += feed_forward(norm(h)); logits = head(norm(h))
// Activations are float32. A row's result depends on its own sequence only.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "attention/mla_attention_backend.h"
#include "kv_cache/kv_storage.h"
#include "model/deepseek_v3/weights.h"
#include "model_config/model_config.h"
#include "moe/expert_runner/expert_runner.h"
#include "ops/op_context.h"
#include "ops/rotary.h"

namespace gimbal {

// The rows of one step over all its sequences.
struct ForwardBatch {
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
  std::vector<float> expert_rows;          // [num_rows * experts_per_token][hidden_size]
  std::vector<float> expert_intermediate;  // [num_rows * experts_per_token][2 * moe_intermediate_size]
  std::vector<float> expert_output;        // [num_rows * experts_per_token][hidden_size]
  RotationTable rotation;
  TokenMajorBatch routed;
};

class Decoder {
 public:
  // `weights` must outlive the decoder. `latent_norm_eps` is that of the q_a and kv_a norms.
  Decoder(const ModelConfig& config, const DecoderWeights& weights, const DecoderContext& context,
          double latent_norm_eps);

  // Writes the new tokens' keys to `cache` and the logits [logit_rows][vocab_size]. Not thread-safe: one step at a
  // time.
  void forward(const ForwardBatch& batch, KvStorage& cache, float* logits, const HiddenObserver& observer = {});

  // Bytes of scratch memory for a step of `num_rows` rows.
  static uint64_t workspace_bytes(const ModelConfig& config, int64_t num_rows);

 private:
  void prepare(const ForwardBatch& batch);
  void add_block_output(int64_t num_rows);
  void compute_logits(const ForwardBatch& batch, float* logits, const HiddenObserver& observer);

  ModelConfig config_;
  const DecoderWeights& weights_;
  DecoderContext context_;
  double latent_norm_eps_;
  MlaShape attention_shape_;
  std::vector<double> frequencies_;
  double amplitude_;
  DecoderWorkspace workspace_;
};

}  // namespace gimbal
