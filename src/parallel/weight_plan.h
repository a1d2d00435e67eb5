// Weight plan: the one description of which tensors a model has, how each is stored and how many bytes it takes.
//
// A pure function of the model config and of the stored formats. The checker, the loader, the random-checkpoint writer
// and the memory plan all read it; nothing else knows tensor names. One rank holds everything here.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model_config/model_config.h"
#include "quantization/weight_format.h"
#include "tensor/data_type.h"

namespace gimbal {

// One tensor of the checkpoint. Names are canonical: "model.layers.0...", "lm_head.weight", without "language_model.".
struct PlannedTensor {
  std::string name;
  // Allowed element types, the preferred first. More than one where any of them has the same meaning
  // (weight_shape: int64 or int32; norm weights and the router bias: bfloat16, float32 or float16).
  std::vector<DataType> data_types;
  std::vector<int64_t> shape;
  uint64_t bytes() const;  // with the preferred type
};

// What a weight is for; the loader binds by role, layer and expert, not by name.
enum class WeightRole : uint8_t {
  kEmbedding,          // [vocab_size, hidden_size]
  kOutputHead,         // [vocab_size, hidden_size]
  kFinalNorm,          // [hidden_size]
  kInputNorm,          // [hidden_size]
  kPostAttentionNorm,  // [hidden_size]
  kQueryDown,          // q_a_proj [q_lora_rank, hidden_size]
  kQueryNorm,          // q_a_layernorm [q_lora_rank]
  kQueryUp,            // q_b_proj [heads * qk_head_dim, q_lora_rank]
  kKeyValueDown,       // kv_a_proj_with_mqa [kv_lora_rank + qk_rope_head_dim, hidden_size]
  kKeyValueNorm,       // kv_a_layernorm [kv_lora_rank]
  kKeyValueUp,         // kv_b_proj [heads * (qk_nope_head_dim + v_head_dim), kv_lora_rank]
  kAttentionOutput,    // o_proj [hidden_size, heads * v_head_dim]
  kDenseGate,          // mlp.gate_proj [intermediate_size, hidden_size]
  kDenseUp,
  kDenseDown,   // [hidden_size, intermediate_size]
  kRouter,      // mlp.gate [num_experts, hidden_size]
  kRouterBias,  // e_score_correction_bias [num_experts]
  kSharedGate,  // mlp.shared_experts.gate_proj [num_shared_experts * moe_intermediate_size, hidden_size]
  kSharedUp,
  kSharedDown,
  kExpertGate,  // mlp.experts.N.gate_proj [moe_intermediate_size, hidden_size]
  kExpertUp,
  kExpertDown,  // [hidden_size, moe_intermediate_size]
};

// One weight: a matrix (columns > 0) or a vector (columns == 0), and the one to three tensors that store it.
struct PlannedWeight {
  WeightRole role;
  int32_t layer = -1;       // -1: not in a layer
  int32_t expert = -1;      // -1: not a routed expert
  std::string module = {};  // "model.layers.3.mlp.experts.7.gate_proj"
  WeightFormat format = WeightFormat::kBFloat16;
  int64_t rows = 0;     // output features
  int64_t columns = 0;  // input features
  // Order: kInt4Group: weight_packed, weight_scale, weight_shape. kFloat8Block: weight, weight_scale_inv. Else: weight.
  std::vector<PlannedTensor> tensors = {};
  uint64_t bytes() const;
};

struct WeightPlan {
  std::vector<PlannedWeight> weights;  // embedding, layers in order, final norm, output head
  uint64_t total_bytes = 0;
};

// Tells in which format the matrix of a module is stored; `announced` is what config.json says.
using FormatOf = std::function<WeightFormat(std::string_view module, WeightFormat announced)>;

// The plan with the announced formats.
WeightPlan make_weight_plan(const ModelConfig& config);

// The plan with the formats that `format_of` finds in a checkpoint.
WeightPlan make_weight_plan(const ModelConfig& config, const FormatOf& format_of);

}  // namespace gimbal
