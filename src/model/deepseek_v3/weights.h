// The weights of one DeepSeek-V3 / Kimi K2 decoder, bound to the checkpoint by role, layer and expert.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "model_config/model_config.h"
#include "moe/expert_runner/expert_runner.h"
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
  std::vector<ExpertWeights> experts;     // [num_experts]
  std::optional<DenseMlpWeights> shared;  // width num_shared_experts * moe_intermediate_size
};

struct LayerWeights {
  MlaWeights attention;
  std::vector<float> post_attention_norm;  // [hidden_size]
  std::optional<DenseMlpWeights> dense;    // exactly one of dense and moe
  std::optional<MoeWeights> moe;
};

// Owns the checkpoint's maps and the few converted tensors; the views point into them. Read-only after loading, so any
// number of threads may use it.
class DecoderWeights {
 public:
  // Binds every planned weight. Matrices stay as stored (never a dequantized copy); norms and biases are widened to
  // float32, misaligned matrices are copied. Values that cannot be right (not finite) are refused, naming the tensor.
  static Result<DecoderWeights> load(Checkpoint checkpoint, const ModelConfig& config);

  WeightMatrix embedding;  // [vocab_size][hidden_size]
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;  // [hidden_size]
  WeightMatrix output_head;       // [vocab_size][hidden_size]; the embedding when tied

  uint64_t plan_bytes() const { return checkpoint_->plan().total_bytes; }
  const std::vector<std::string>& notes() const { return checkpoint_->notes(); }

 private:
  friend class WeightBinder;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
};

}  // namespace gimbal
