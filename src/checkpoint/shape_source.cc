#include "checkpoint/shape_source.h"

#include <initializer_list>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace gimbal {
namespace {

using Keys = std::vector<std::pair<const char*, int64_t>>;

Keys attention_keys(WeightRole role, const ModelConfig& config) {
  const std::pair hidden{"hidden_size", config.hidden_size};
  const std::pair heads{"num_attention_heads", config.num_attention_heads};
  const std::pair q_rank{"q_lora_rank", config.q_lora_rank};
  const std::pair kv_rank{"kv_lora_rank", config.kv_lora_rank};
  const std::pair nope{"qk_nope_head_dim", config.qk_nope_head_dim};
  const std::pair rope{"qk_rope_head_dim", config.qk_rope_head_dim};
  const std::pair value{"v_head_dim", config.v_head_dim};
  switch (role) {
    case WeightRole::kQueryDown:
      return {q_rank, hidden};
    case WeightRole::kQueryNorm:
      return {q_rank};
    case WeightRole::kQueryUp:
      return {heads, nope, rope, q_rank};
    case WeightRole::kKeyValueDown:
      return {kv_rank, rope, hidden};
    case WeightRole::kKeyValueNorm:
      return {kv_rank};
    case WeightRole::kKeyValueUp:
      return {heads, nope, value, kv_rank};
    case WeightRole::kAttentionOutput:
      return {hidden, heads, value};
    default:
      return {hidden};
  }
}

Keys keys_of(WeightRole role, const ModelConfig& config) {
  const std::pair hidden{"hidden_size", config.hidden_size};
  const std::pair moe{"moe_intermediate_size", config.moe_intermediate_size};
  switch (role) {
    case WeightRole::kEmbedding:
    case WeightRole::kOutputHead:
      return {{"vocab_size", config.vocab_size}, hidden};
    case WeightRole::kDenseGate:
    case WeightRole::kDenseUp:
    case WeightRole::kDenseDown:
      return {{"intermediate_size", config.intermediate_size}, hidden};
    case WeightRole::kRouter:
      return {{"n_routed_experts", config.num_experts}, hidden};
    case WeightRole::kRouterBias:
      return {{"n_routed_experts", config.num_experts}};
    case WeightRole::kSharedGate:
    case WeightRole::kSharedUp:
    case WeightRole::kSharedDown:
      return {{"n_shared_experts", config.num_shared_experts}, moe, hidden};
    case WeightRole::kExpertGate:
    case WeightRole::kExpertUp:
    case WeightRole::kExpertDown:
      return {moe, hidden};
    default:
      return attention_keys(role, config);
  }
}

}  // namespace

std::string describe_shape_source(const PlannedWeight& weight, size_t index, const ModelConfig& config) {
  if (weight.format == WeightFormat::kInt4Group && index == 2) return "rows and columns of a matrix";
  std::string text;
  for (const auto& [key, value] : keys_of(weight.role, config)) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, value);
  }
  if (weight.format == WeightFormat::kInt4Group) {
    text += index == 0 ? fmt::format(", num_bits {}", config.quantization.num_bits)
                       : fmt::format(", group_size {}", config.quantization.group_size);
  } else if (weight.format == WeightFormat::kFloat8Block && index == 1) {
    text += fmt::format(", weight_block_size {}x{}", config.quantization.block_rows, config.quantization.block_columns);
  }
  return text;
}

}  // namespace gimbal
