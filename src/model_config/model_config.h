// ModelConfig: the dimensions and switches of one model, read and validated from config.json before any weight is read.
//
// A value: no file handles, no global state, cheap to copy. Families: kimi_k2, deepseek_v3 and the text part of
// kimi_k25.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model_config/module_patterns.h"
#include "quantization/weight_format.h"

namespace gimbal {

// Rotary position embedding over qk_rope_head_dim values, adjacent pairs; YaRN as in the DeepSeek-V3 reference code.
struct RopeConfig {
  enum class Kind { kDefault, kYarn };
  Kind kind = Kind::kDefault;
  double theta = 10000.0;
  // Only for kYarn:
  double factor = 1.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double mscale = 1.0;
  double mscale_all_dim = 0.0;  // 0: the softmax scale is not changed
  int64_t original_max_position = 0;
};

struct QuantizationConfig {
  enum class Method { kNone, kInt4Group, kFloat8Block };
  Method method = Method::kNone;
  int num_bits = 4;     // kInt4Group: as config.json says; other values than 4 are met by the shape check with a reason
  int group_size = 32;  // kInt4Group: columns that share one scale
  int block_rows = 128;  // kFloat8Block
  int block_columns = 128;
  ModulePatterns ignore;  // kInt4Group: modules that stay unquantized
};

struct ModelConfig {
  std::string architecture;      // "DeepseekV3ForCausalLM"
  std::string model_type;        // of the text model: "kimi_k2", "deepseek_v3"
  bool has_vision_part = false;  // kimi_k25: vision tensors exist and are skipped

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;                // decoder layers, without multi-token-prediction layers
  int64_t num_nextn_predict_layers = 0;  // MTP layers behind them, skipped
  int64_t first_k_dense_replace = 0;
  int64_t moe_layer_freq = 1;
  int64_t num_experts = 0;  // n_routed_experts; 0: every layer is dense
  int64_t num_shared_experts = 0;
  int64_t num_experts_per_token = 0;
  int64_t moe_intermediate_size = 0;
  int64_t intermediate_size = 0;  // dense layers
  int64_t num_attention_heads = 0;
  int64_t q_lora_rank = 0;
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;
  double rms_norm_eps = 1e-6;
  RopeConfig rope;
  int64_t max_position_embeddings = 0;
  int64_t num_expert_groups = 1;    // n_group
  int64_t num_topk_groups = 1;      // topk_group
  bool normalize_topk_prob = true;  // norm_topk_prob
  double routed_scaling_factor = 1.0;
  bool tie_word_embeddings = false;
  int64_t bos_token_id = -1;
  int64_t pad_token_id = -1;
  std::vector<int64_t> eos_token_ids;  // config.json, then generation_config.json, without duplicates
  QuantizationConfig quantization;
  // Lines a person should see once at start: defaults that were derived, keys that were ignored.
  std::vector<std::string> notes;

  int64_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
  // Values cached per token and layer: the normed latent, then the rotated rope key.
  int64_t kv_cache_width() const { return kv_lora_rank + qk_rope_head_dim; }
  bool is_moe_layer(int64_t layer) const {
    return num_experts > 0 && layer >= first_k_dense_replace && layer % moe_layer_freq == 0;
  }
  int64_t num_moe_layers() const;
  // The format that config.json announces for the matrix of a module ("model.layers.3.mlp.experts.0.up_proj").
  // config.json announces unquantized tensors as `torch_dtype`; here always kBFloat16, the checkpoint decides.
  WeightFormat announced_format(std::string_view module) const;
};

// Parses and validates the text of config.json. All violated rules are reported in one error: each with the key, the
// value found and what is allowed. Unknown architectures are refused with the list of known ones.
Result<ModelConfig> parse_model_config(std::string_view config_text);

// Reads DIR/config.json (and DIR/generation_config.json for more end tokens, when it exists).
Result<ModelConfig> read_model_config(const std::filesystem::path& model_dir);

// The names that parse_model_config accepts, for messages and `probe`.
std::vector<std::string> known_architectures();

// Softmax scale of attention: qk_head_dim^-0.5 times mscale(mscale_all_dim)^2. Source: DeepSeek-V3 reference code.
double attention_softmax_scale(const ModelConfig& config);

// Rotation frequencies f'_i, i in [0, qk_rope_head_dim/2), after YaRN; always the scaled ones, at every length.
std::vector<double> rope_frequencies(const ModelConfig& config);

// Multiplier of cos and sin: mscale(mscale)/mscale(mscale_all_dim); 1 for the published models.
double rope_amplitude(const ModelConfig& config);

}  // namespace gimbal
