#include "parallel/weight_plan.h"

#include <fmt/format.h>

#include <utility>

#include "quantization/weight_matrix.h"

namespace gimbal {
namespace {

// Float types in which a vector may be stored, the published one first.
std::vector<DataType> float_types(DataType preferred) {
  std::vector<DataType> types = {preferred};
  for (const DataType type : {DataType::kBFloat16, DataType::kFloat32, DataType::kFloat16}) {
    if (type != preferred) types.push_back(type);
  }
  return types;
}

DataType element_type(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFloat32:
      return DataType::kFloat32;
    case WeightFormat::kFloat16:
      return DataType::kFloat16;
    case WeightFormat::kFloat8Block:
      return DataType::kFloat8E4M3;
    case WeightFormat::kBFloat16:
    case WeightFormat::kInt4Group:
      break;
  }
  return DataType::kBFloat16;
}

// Builds the list in checkpoint order: embedding, layers, final norm, output head.
class PlanBuilder {
 public:
  PlanBuilder(const ModelConfig& config, const FormatOf& format_of) : config_(config), format_of_(format_of) {}

  WeightPlan build() {
    add_matrix({.role = WeightRole::kEmbedding, .module = "model.embed_tokens"}, config_.vocab_size,
               config_.hidden_size);
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) add_layer(static_cast<int32_t>(layer));
    add_vector({.role = WeightRole::kFinalNorm, .module = "model.norm"}, config_.hidden_size);
    if (!config_.tie_word_embeddings) {
      add_matrix({.role = WeightRole::kOutputHead, .module = "lm_head"}, config_.vocab_size, config_.hidden_size);
    }
    return std::move(plan_);
  }

 private:
  void add_layer(int32_t layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    add_vector({.role = WeightRole::kInputNorm, .layer = layer, .module = prefix + "input_layernorm"},
               config_.hidden_size);
    add_attention(layer, prefix + "self_attn.");
    add_vector({.role = WeightRole::kPostAttentionNorm, .layer = layer, .module = prefix + "post_attention_layernorm"},
               config_.hidden_size);
    if (config_.is_moe_layer(layer)) {
      add_moe(layer, prefix + "mlp.");
    } else {
      add_dense(layer, prefix + "mlp.");
    }
  }

  void add_attention(int32_t layer, const std::string& prefix) {
    const int64_t heads = config_.num_attention_heads;
    const int64_t hidden = config_.hidden_size;
    const int64_t query = config_.q_lora_rank;
    const int64_t latent = config_.kv_lora_rank;
    const auto named = [&](WeightRole role, const char* name) {
      return PlannedWeight{.role = role, .layer = layer, .module = prefix + name};
    };
    add_matrix(named(WeightRole::kQueryDown, "q_a_proj"), query, hidden);
    add_vector(named(WeightRole::kQueryNorm, "q_a_layernorm"), query);
    add_matrix(named(WeightRole::kQueryUp, "q_b_proj"), heads * config_.qk_head_dim(), query);
    add_matrix(named(WeightRole::kKeyValueDown, "kv_a_proj_with_mqa"), config_.kv_cache_width(), hidden);
    add_vector(named(WeightRole::kKeyValueNorm, "kv_a_layernorm"), latent);
    add_matrix(named(WeightRole::kKeyValueUp, "kv_b_proj"), heads * (config_.qk_nope_head_dim + config_.v_head_dim),
               latent);
    add_matrix(named(WeightRole::kAttentionOutput, "o_proj"), hidden, heads * config_.v_head_dim);
  }

  void add_dense(int32_t layer, const std::string& prefix) {
    add_matrix({.role = WeightRole::kDenseGate, .layer = layer, .module = prefix + "gate_proj"},
               config_.intermediate_size, config_.hidden_size);
    add_matrix({.role = WeightRole::kDenseUp, .layer = layer, .module = prefix + "up_proj"}, config_.intermediate_size,
               config_.hidden_size);
    add_matrix({.role = WeightRole::kDenseDown, .layer = layer, .module = prefix + "down_proj"}, config_.hidden_size,
               config_.intermediate_size);
  }

  void add_moe(int32_t layer, const std::string& prefix) {
    const int64_t hidden = config_.hidden_size;
    const int64_t width = config_.moe_intermediate_size;
    add_matrix({.role = WeightRole::kRouter, .layer = layer, .module = prefix + "gate"}, config_.num_experts, hidden);
    add_router_bias(layer, prefix + "gate");
    if (config_.num_shared_experts > 0) {
      const std::string shared = prefix + "shared_experts.";
      const int64_t shared_width = config_.num_shared_experts * width;
      add_matrix({.role = WeightRole::kSharedGate, .layer = layer, .module = shared + "gate_proj"}, shared_width,
                 hidden);
      add_matrix({.role = WeightRole::kSharedUp, .layer = layer, .module = shared + "up_proj"}, shared_width, hidden);
      add_matrix({.role = WeightRole::kSharedDown, .layer = layer, .module = shared + "down_proj"}, hidden,
                 shared_width);
    }
    for (int32_t expert = 0; expert < static_cast<int32_t>(config_.num_experts); ++expert) {
      const std::string name = fmt::format("{}experts.{}.", prefix, expert);
      const auto planned = [&](WeightRole role, const char* part) {
        return PlannedWeight{.role = role, .layer = layer, .expert = expert, .module = name + part};
      };
      add_matrix(planned(WeightRole::kExpertGate, "gate_proj"), width, hidden);
      add_matrix(planned(WeightRole::kExpertUp, "up_proj"), width, hidden);
      add_matrix(planned(WeightRole::kExpertDown, "down_proj"), hidden, width);
    }
  }

  void add_router_bias(int32_t layer, const std::string& module) {
    PlannedWeight weight{
        .role = WeightRole::kRouterBias, .layer = layer, .module = module, .rows = config_.num_experts};
    weight.format = WeightFormat::kFloat32;
    weight.tensors.push_back(
        {module + ".e_score_correction_bias", float_types(DataType::kFloat32), {config_.num_experts}});
    add(std::move(weight));
  }

  void add_vector(PlannedWeight weight, int64_t size) {
    weight.rows = size;
    weight.tensors.push_back({weight.module + ".weight", float_types(DataType::kBFloat16), {size}});
    add(std::move(weight));
  }

  void add_matrix(PlannedWeight weight, int64_t rows, int64_t columns) {
    weight.rows = rows;
    weight.columns = columns;
    weight.format = format_of_(weight.module, config_.announced_format(weight.module));
    if (weight.format == WeightFormat::kInt4Group) {
      const int64_t words = ceil_div(columns * config_.quantization.num_bits, 32);
      const int64_t groups = ceil_div(columns, config_.quantization.group_size);
      weight.tensors.push_back({weight.module + ".weight_packed", {DataType::kInt32}, {rows, words}});
      weight.tensors.push_back({weight.module + ".weight_scale", float_types(DataType::kBFloat16), {rows, groups}});
      weight.tensors.push_back({weight.module + ".weight_shape", {DataType::kInt64, DataType::kInt32}, {2}});
    } else {
      weight.tensors.push_back({weight.module + ".weight", {element_type(weight.format)}, {rows, columns}});
    }
    if (weight.format == WeightFormat::kFloat8Block) {
      const std::vector<int64_t> blocks = {ceil_div(rows, config_.quantization.block_rows),
                                           ceil_div(columns, config_.quantization.block_columns)};
      weight.tensors.push_back({weight.module + ".weight_scale_inv", {DataType::kFloat32}, blocks});
    }
    add(std::move(weight));
  }

  void add(PlannedWeight weight) {
    plan_.total_bytes += weight.bytes();
    plan_.weights.push_back(std::move(weight));
  }

  const ModelConfig& config_;
  const FormatOf& format_of_;
  WeightPlan plan_;
};

}  // namespace

uint64_t PlannedTensor::bytes() const {
  auto count = static_cast<uint64_t>(size_of(data_types.front()));
  for (const int64_t extent : shape) count *= static_cast<uint64_t>(extent);
  return count;
}

uint64_t PlannedWeight::bytes() const {
  uint64_t sum = 0;
  for (const PlannedTensor& tensor : tensors) sum += tensor.bytes();
  return sum;
}

WeightPlan make_weight_plan(const ModelConfig& config, const FormatOf& format_of) {
  return PlanBuilder(config, format_of).build();
}

WeightPlan make_weight_plan(const ModelConfig& config) {
  return make_weight_plan(config, [](std::string_view, WeightFormat announced) { return announced; });
}

}  // namespace gimbal
