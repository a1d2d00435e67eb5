// One rank's weights of a DeepSeek-V3 / Kimi K2 decoder, bound to the checkpoint by role, layer and expert. Sizes in
// comments are of the whole model; a rank holds the slices of its RankWeightPlan.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model_config/model_config.h"
#include "moe/expert_runner/expert_runner.h"
#include "parallel/rank_weight_plan.h"
#include "quantization/weight_matrix.h"

namespace gimbal {

struct MlaWeights {
  std::vector<float> input_norm;      // [hidden_size]
  WeightMatrix query_down;            // [q_lora_rank][hidden_size]
  std::vector<float> query_norm;      // [q_lora_rank]
  WeightMatrix query_up;              // [num_heads * (nope + rope)][q_lora_rank]
  WeightMatrix key_value_down;        // [kv_lora_rank + rope][hidden_size]
  std::vector<float> key_value_norm;  // [kv_lora_rank]
  WeightMatrix key_value_up;          // [num_heads * (nope + value)][kv_lora_rank]
  WeightMatrix output;                // [hidden_size][num_heads * value]
};

struct DenseMlpWeights {
  WeightMatrix gate;  // [intermediate_size][hidden_size]
  WeightMatrix up;    // [intermediate_size][hidden_size]
  WeightMatrix down;  // [hidden_size][intermediate_size]
};

struct MoeWeights {
  WeightMatrix router;                    // [num_experts][hidden_size]
  std::vector<float> router_bias;         // [num_experts]
  std::vector<ExpertWeights> experts;     // [slots_per_rank], by slot of the placement
  std::optional<DenseMlpWeights> shared;  // width num_shared_experts * moe_intermediate_size
};

struct LayerWeights {
  MlaWeights attention;
  std::vector<float> post_attention_norm;  // [hidden_size]
  std::optional<DenseMlpWeights> dense;    // exactly one of dense and moe
  std::optional<MoeWeights> moe;
};

// Keeps the checkpoint, which the ranks of a process share, and owns converted tensors and slices that cut columns; the
// views point into them. Read-only after loading, so any number of threads may use it.
class DecoderWeights {
 public:
  // Binds the rank's weights. Matrices stay as stored (never a dequantized copy): slices of rows are views, slices of
  // columns are repacked copies; norms and biases are widened to float32, misaligned matrices are copied. Values that
  // cannot be right (not finite) are refused, naming the tensor, by the first rank that holds a part of it.
  static Result<DecoderWeights> load(std::shared_ptr<const Checkpoint> checkpoint, const ModelConfig& config,
                                     const RankWeightPlan& plan);

  WeightMatrix embedding;            // [vocab_size][hidden_size]
  std::vector<LayerWeights> layers;  // of the rank's stage
  std::vector<float> final_norm;     // [hidden_size]
  WeightMatrix output_head;          // [vocab_size][hidden_size]; the embedding when tied

  uint64_t copied_bytes() const { return copied_bytes_; }

 private:
  friend class WeightBinder;
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
  uint64_t copied_bytes_ = 0;
};

}  // namespace gimbal
