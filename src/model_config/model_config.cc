#include "model_config/model_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/file_text.h"
#include "base/json_reading.h"
#include "model_config/config_reader.h"
#include "model_config/quantization_config.h"
#include "model_config/rope_config.h"

namespace gimbal {
namespace {

// Upper bounds far above any published model and far below where products of dimensions overflow 64 bits.
constexpr IntegerRange kWidth = {.least = 1, .most = int64_t{1} << 20};
constexpr IntegerRange kVocabulary = {.least = 1, .most = int64_t{1} << 24};
constexpr IntegerRange kLayers = {.least = 1, .most = 4096};
constexpr IntegerRange kExperts = {.least = 0, .most = int64_t{1} << 16};
constexpr IntegerRange kPositions = {.least = 1, .most = int64_t{1} << 32};

constexpr std::array<const char*, 3> kKnownModelTypes = {"kimi_k2", "deepseek_v3", "kimi_k25"};

// Keys that do not change what is computed here.
constexpr std::array kHarmlessKeys = {"architectures",
                                      "model_type",
                                      "transformers_version",
                                      "torch_dtype",
                                      "dtype",
                                      "use_cache",
                                      "initializer_range",
                                      "pretraining_tp",
                                      "aux_loss_alpha",
                                      "seq_aux",
                                      "ep_size",
                                      "auto_map",
                                      "attention_dropout",
                                      "_name_or_path",
                                      "router_aux_loss_coef",
                                      "output_attentions",
                                      "output_hidden_states",
                                      "return_dict",
                                      "chunk_size_feed_forward",
                                      "is_encoder_decoder",
                                      "is_decoder",
                                      "id2label",
                                      "label2id",
                                      "problem_type",
                                      "text_config",
                                      "vision_config",
                                      "media_placeholder_token_id",
                                      "ignore_index",
                                      "use_unified_vision_chunk",
                                      "video_placeholder",
                                      "unk_token_id",
                                      "sep_token_id",
                                      "num_labels",
                                      "head_dim",
                                      "rope_interleave",
                                      "qk_head_dim",
                                      "cross_attention_hidden_size",
                                      "add_cross_attention",
                                      "tie_encoder_decoder",
                                      "torchscript",
                                      "pruned_heads",
                                      "return_dict_in_generate",
                                      "output_scores",
                                      "max_length"};

// Keys of other designs: a value that is not null, false or 0 means another function than the one computed here.
constexpr std::array kForeignKeys = {"sliding_window",
                                     "use_sliding_window",
                                     "layer_types",
                                     "index_topk",
                                     "index_n_heads",
                                     "index_head_dim",
                                     "attn_logit_softcapping",
                                     "final_logit_softcapping",
                                     "linear_attn_config",
                                     "use_qk_norm",
                                     "mlp_bias",
                                     "moe_router_activation_func",
                                     "attention_sink",
                                     "num_kv_shared_layers"};

void require_string(ConfigReader& reader, const char* key, const char* only, const char* otherwise) {
  const std::string value = reader.string(key).value_or(otherwise);
  if (value != only) reader.violate(key, "is '" + value + "'", fmt::format("'{}'", only));
}

void read_dimensions(ConfigReader& reader, ModelConfig& config) {
  config.vocab_size = reader.required_integer("vocab_size", kVocabulary);
  config.hidden_size = reader.required_integer("hidden_size", kWidth);
  config.num_layers = reader.required_integer("num_hidden_layers", kLayers);
  config.num_nextn_predict_layers = reader.integer_or("num_nextn_predict_layers", 0, {.least = 0, .most = 64});
  config.intermediate_size = reader.required_integer("intermediate_size", kWidth);
  config.num_attention_heads = reader.required_integer("num_attention_heads", {.least = 1, .most = 4096});
  config.kv_lora_rank = reader.required_integer("kv_lora_rank", kWidth);
  if (!reader.has("q_lora_rank")) {
    reader.violate("q_lora_rank", "is missing or null", "an integer (models without a query latent are not supported)");
  }
  config.q_lora_rank = reader.integer_or("q_lora_rank", 1, kWidth);
  config.qk_nope_head_dim = reader.required_integer("qk_nope_head_dim", {.least = 1, .most = 4096});
  config.qk_rope_head_dim = reader.required_integer("qk_rope_head_dim", {.least = 2, .most = 4096});
  config.v_head_dim = reader.required_integer("v_head_dim", {.least = 1, .most = 4096});
  config.max_position_embeddings = reader.required_integer("max_position_embeddings", kPositions);
  config.rms_norm_eps = reader.number_or("rms_norm_eps", 1e-6, 1e-20, 1.0);
  config.tie_word_embeddings = reader.boolean_or("tie_word_embeddings", false);
  const int64_t key_heads =
      reader.integer_or("num_key_value_heads", config.num_attention_heads, {.least = 1, .most = 4096});
  if (key_heads != config.num_attention_heads) {
    reader.violate("num_key_value_heads", fmt::format("is {}", key_heads),
                   fmt::format("num_attention_heads ({}); the latent is shared anyway", config.num_attention_heads));
  }
  if (config.qk_rope_head_dim % 2 != 0)
    reader.violate("qk_rope_head_dim", fmt::format("is {}", config.qk_rope_head_dim), "an even number");
}

void read_experts(ConfigReader& reader, ModelConfig& config) {
  config.num_experts = reader.integer_or("n_routed_experts", 0, kExperts);
  config.first_k_dense_replace = reader.integer_or("first_k_dense_replace", 0, {.least = 0, .most = kLayers.most});
  if (config.first_k_dense_replace > config.num_layers) {
    reader.violate("first_k_dense_replace", fmt::format("is {}", config.first_k_dense_replace),
                   fmt::format("at most num_hidden_layers ({})", config.num_layers));
  }
  config.moe_layer_freq = reader.integer_or("moe_layer_freq", 1, kLayers);
  config.num_shared_experts = reader.integer_or("n_shared_experts", 0, {.least = 0, .most = 256});
  config.num_expert_groups = reader.integer_or("n_group", 1, {.least = 1, .most = kExperts.most});
  config.num_topk_groups = reader.integer_or("topk_group", 1, {.least = 1, .most = kExperts.most});
  config.normalize_topk_prob = reader.boolean_or("norm_topk_prob", true);
  config.routed_scaling_factor = reader.number_or("routed_scaling_factor", 1.0, 1e-6, 1e6);
  if (config.num_experts == 0) {
    for (const char* key : {"num_experts_per_tok", "moe_intermediate_size", "scoring_func", "topk_method"})
      reader.mark_known(key);
    return;
  }
  config.num_experts_per_token = reader.required_integer("num_experts_per_tok", {.least = 1, .most = kExperts.most});
  config.moe_intermediate_size = reader.required_integer("moe_intermediate_size", kWidth);
  require_string(reader, "scoring_func", "sigmoid", "sigmoid");
  require_string(reader, "topk_method", "noaux_tc", "noaux_tc");
}

void check_experts(ConfigReader& reader, const ModelConfig& config) {
  // Every expert of every layer is an entry of the weight plan; published models have some ten thousand.
  constexpr int64_t kMostExpertsInAll = 262144;
  if (config.num_experts == 0) return;
  if (config.num_experts * config.num_layers > kMostExpertsInAll) {
    reader.violate("n_routed_experts", fmt::format("is {} in {} layers", config.num_experts, config.num_layers),
                   fmt::format("at most {} experts in all layers together", kMostExpertsInAll));
  }
  if (config.num_experts_per_token > config.num_experts) {
    reader.violate("num_experts_per_tok", fmt::format("is {}", config.num_experts_per_token),
                   fmt::format("at most n_routed_experts ({})", config.num_experts));
  }
  if (config.num_experts % config.num_expert_groups != 0) {
    return reader.violate("n_group", fmt::format("is {}", config.num_expert_groups),
                          fmt::format("a divisor of n_routed_experts ({})", config.num_experts));
  }
  if (config.num_topk_groups > config.num_expert_groups) {
    return reader.violate("topk_group", fmt::format("is {}", config.num_topk_groups),
                          fmt::format("at most n_group ({})", config.num_expert_groups));
  }
  const int64_t reachable = config.num_topk_groups * (config.num_experts / config.num_expert_groups);
  if (config.num_experts_per_token > reachable && config.num_experts_per_token <= config.num_experts) {
    reader.violate("num_experts_per_tok", fmt::format("is {}", config.num_experts_per_token),
                   fmt::format("at most the {} experts of topk_group groups", reachable));
  }
}

void refuse_other_functions(ConfigReader& reader) {
  require_string(reader, "hidden_act", "silu", "silu");
  if (reader.boolean_or("attention_bias", false)) reader.violate("attention_bias", "is true", "false");
  for (const char* key : kForeignKeys) {
    const boost::json::value* value = reader.find(key);
    if (value == nullptr) continue;
    const bool is_off = (value->is_bool() && !value->get_bool()) || (value->is_int64() && value->get_int64() == 0);
    if (!is_off) reader.violate(key, "is " + shown(*value), "absent or null (another design than DeepSeek-V3's)");
  }
}

int64_t read_token_id(ConfigReader& text, ConfigReader& outer, const char* key, int64_t vocab_size) {
  ConfigReader& reader = text.has(key) ? text : outer;
  outer.mark_known(key);
  text.mark_known(key);
  return reader.integer_or(key, -1, {.least = -1, .most = vocab_size - 1});
}

// An integer or a list of integers.
void read_end_tokens(ConfigReader& reader, int64_t vocab_size, std::vector<int64_t>& ids) {
  const boost::json::value* value = reader.find("eos_token_id");
  if (value == nullptr) return;
  const auto take = [&](const boost::json::value& id) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= vocab_size) {
      return reader.violate("eos_token_id", "is " + shown(*value),
                            fmt::format("token ids from 0 to {}", vocab_size - 1));
    }
    if (std::find(ids.begin(), ids.end(), id.get_int64()) == ids.end()) ids.push_back(id.get_int64());
  };
  if (!value->is_array()) return take(*value);
  for (const boost::json::value& id : value->get_array()) take(id);
}

tl::unexpected<Error> refuse_architecture(std::string_view key, std::string_view found) {
  return fail(Error::invalid(
      fmt::format("config.json: {} is {}, which this build does not know. Known: {}. Other families would give "
                  "wrong numbers if they were treated as one of these.",
                  key, found, fmt::join(known_architectures(), ", "))));
}

bool is_known_model_type(const std::string& type) {
  return std::find(kKnownModelTypes.begin(), kKnownModelTypes.end(), type) != kKnownModelTypes.end();
}

// Model types and architectures of both levels must be known; near relatives are other functions.
Status read_architecture(ConfigReader& text, ConfigReader& outer, ModelConfig& config) {
  const std::string outer_type = outer.string("model_type").value_or("");
  config.model_type = text.string("model_type").value_or(outer_type);
  config.has_vision_part = outer_type == "kimi_k25";
  config.architecture = "DeepseekV3ForCausalLM";
  for (const std::string& type : {outer_type.empty() ? config.model_type : outer_type, config.model_type}) {
    if (!is_known_model_type(type))
      return refuse_architecture("model_type", type.empty() ? "missing" : "'" + type + "'");
  }
  for (ConfigReader* reader : {&outer, &text}) {
    const boost::json::value* architectures = reader->find("architectures");
    if (architectures == nullptr) continue;
    const bool is_single = architectures->is_array() && architectures->get_array().size() == 1 &&
                           architectures->get_array()[0].is_string();
    const std::string name = is_single ? std::string(architectures->get_array()[0].get_string()) : std::string();
    if (name != "DeepseekV3ForCausalLM" && name != "KimiK25ForConditionalGeneration") {
      return refuse_architecture("architectures", shown(*architectures));
    }
  }
  return {};
}

void read_token_ids(ConfigReader& text, ConfigReader& outer, ModelConfig& config) {
  config.bos_token_id = read_token_id(text, outer, "bos_token_id", config.vocab_size);
  config.pad_token_id = read_token_id(text, outer, "pad_token_id", config.vocab_size);
  read_end_tokens(text, config.vocab_size, config.eos_token_ids);
  if (!text.path().empty()) read_end_tokens(outer, config.vocab_size, config.eos_token_ids);
}

void read_quantization(ConfigReader& text, ConfigReader& outer, Violations& violations, ModelConfig& config) {
  ConfigReader& reader = text.has("quantization_config") ? text : outer;
  for (ConfigReader* level : {&text, &outer}) level->mark_known("quantization_config");
  if (const boost::json::value* quantization = reader.find("quantization_config")) {
    config.quantization = read_quantization_config(*quantization, reader.path() + "quantization_config", violations);
  }
}

void note_unknown_keys(ConfigReader& text, ConfigReader& outer, bool is_nested, ModelConfig& config) {
  outer.mark_known("tie_word_embeddings");
  for (const char* key : kHarmlessKeys) {
    text.mark_known(key);
    outer.mark_known(key);
  }
  std::vector<std::string> unknown = text.unknown_keys();
  if (is_nested) {
    const std::vector<std::string> more = outer.unknown_keys();
    unknown.insert(unknown.end(), more.begin(), more.end());
  }
  if (unknown.empty()) return;
  std::sort(unknown.begin(), unknown.end());
  config.notes.push_back(
      fmt::format("config.json: keys this build does not know and ignores: {}", fmt::join(unknown, ", ")));
}

}  // namespace

std::vector<std::string> known_architectures() {
  return {"DeepseekV3ForCausalLM (model_type kimi_k2, deepseek_v3)",
          "KimiK25ForConditionalGeneration (model_type kimi_k25, text part)"};
}

int64_t ModelConfig::num_moe_layers() const {
  int64_t count = 0;
  for (int64_t layer = 0; layer < num_layers; ++layer) count += is_moe_layer(layer) ? 1 : 0;
  return count;
}

WeightFormat ModelConfig::announced_format(std::string_view module) const {
  const bool is_linear = module.ends_with("_proj") || module.ends_with("_proj_with_mqa");
  if (!is_linear) return WeightFormat::kBFloat16;  // embedding, norms, router, output head
  switch (quantization.method) {
    case QuantizationConfig::Method::kInt4Group:
      return quantization.ignore.matches(module) ? WeightFormat::kBFloat16 : WeightFormat::kInt4Group;
    case QuantizationConfig::Method::kFloat8Block:
      return WeightFormat::kFloat8Block;
    case QuantizationConfig::Method::kNone:
      break;
  }
  return WeightFormat::kBFloat16;
}

Result<ModelConfig> parse_model_config(std::string_view config_text) {
  GIMBAL_ASSIGN_OR_RETURN(const boost::json::value document, parse_json(config_text, "config.json"));
  if (!document.is_object()) return fail(Error::invalid("config.json holds no JSON object."));
  const boost::json::object& top = document.get_object();
  const boost::json::value* nested = top.if_contains("text_config");
  const bool is_nested = nested != nullptr && !nested->is_null();
  if (is_nested && !nested->is_object()) return fail(Error::invalid("config.json: text_config is not an object."));
  Violations violations;
  ConfigReader outer(top, "", violations);
  ConfigReader text(is_nested ? nested->get_object() : top, is_nested ? "text_config." : "", violations);

  ModelConfig config;
  GIMBAL_RETURN_IF_ERROR(read_architecture(text, outer, config));
  read_dimensions(text, config);
  read_experts(text, config);
  check_experts(text, config);
  refuse_other_functions(text);
  config.rope = read_rope_config(text, violations, config.notes);
  read_token_ids(text, outer, config);
  read_quantization(text, outer, violations, config);
  note_unknown_keys(text, outer, is_nested, config);
  if (!violations.empty()) {
    return fail(Error::invalid(fmt::format("config.json cannot be used:\n  {}", fmt::join(violations, "\n  "))));
  }
  return config;
}

Result<ModelConfig> read_model_config(const std::filesystem::path& model_dir) {
  std::error_code code;
  if (!std::filesystem::is_directory(model_dir, code)) {
    return fail(Error::invalid(
        fmt::format("--model-path {} is not a folder. It must hold config.json and the safetensors files of a model.",
                    model_dir.string()),
        "--model-path"));
  }
  GIMBAL_ASSIGN_OR_RETURN(const std::string text, read_file_text(model_dir / "config.json", uint64_t{16} << 20));
  Result<ModelConfig> config = parse_model_config(text);
  if (!config) return fail(Error::invalid(fmt::format("{}: {}", model_dir.string(), config.error().message)));
  const std::filesystem::path generation_path = model_dir / "generation_config.json";
  if (!std::filesystem::exists(generation_path, code)) return config;
  GIMBAL_ASSIGN_OR_RETURN(const std::string generation_text, read_file_text(generation_path, uint64_t{16} << 20));
  GIMBAL_ASSIGN_OR_RETURN(const boost::json::value generation, parse_json(generation_text, generation_path.string()));
  if (!generation.is_object())
    return fail(Error::invalid(fmt::format("{} holds no JSON object.", generation_path.string())));
  Violations violations;
  ConfigReader reader(generation.get_object(), "", violations);
  read_end_tokens(reader, config->vocab_size, config->eos_token_ids);
  if (!violations.empty())
    return fail(Error::invalid(
        fmt::format("{} cannot be used:\n  {}", generation_path.string(), fmt::join(violations, "\n  "))));
  return config;
}

}  // namespace gimbal
