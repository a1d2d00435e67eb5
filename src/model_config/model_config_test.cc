#include "model_config/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <boost/json.hpp>

#include "base/file_text.h"

namespace gimbal {
namespace {

using testing::HasSubstr;

const std::string kMini = *read_file_text(std::string(GIMBAL_SOURCE_DIR) + "/models/kimi-k2-mini/config.json");
const std::string kK26 = *read_file_text(std::string(GIMBAL_SOURCE_DIR) + "/share/models/kimi-k2.6-config/config.json");

// The mini config with one key set to a JSON text, or removed when the text is empty.
std::string with(const std::string& key, const std::string& value) {
  auto object = boost::json::parse(kMini).as_object();
  if (value.empty()) {
    object.erase(key);
  } else {
    object[key] = boost::json::parse(value);
  }
  return boost::json::serialize(object);
}

std::string message_of(const std::string& text) {
  const auto config = parse_model_config(text);
  EXPECT_FALSE(config.has_value()) << text.substr(0, 200);
  return config.has_value() ? std::string() : config.error().message;
}

std::string refusal(const std::string& key, const std::string& value) {
  const std::string message = message_of(with(key, value));
  EXPECT_THAT(message, HasSubstr(key)) << value;
  return message;
}

TEST(ModelConfig, ReadsTheBundledModel) {
  const auto config = parse_model_config(kMini);
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->num_layers, 8);
  EXPECT_EQ(config->num_experts, 384);
  EXPECT_EQ(config->num_experts_per_token, 8);
  EXPECT_EQ(config->kv_cache_width(), 80);
  EXPECT_EQ(config->num_moe_layers(), 7);
  EXPECT_FALSE(config->is_moe_layer(0));
  EXPECT_TRUE(config->is_moe_layer(7));
  EXPECT_THAT(config->eos_token_ids, testing::ElementsAre(3841));
  EXPECT_TRUE(config->notes.empty()) << config->notes.front();
  const auto read = read_model_config(std::string(GIMBAL_SOURCE_DIR) + "/models/kimi-k2-mini");
  EXPECT_THAT(read->eos_token_ids, testing::ElementsAre(3841, 3842));  // generation_config.json adds its own
}

TEST(ModelConfig, ReadsTheNestedConfigOfK26) {
  const auto config = parse_model_config(kK26);
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->model_type, "kimi_k2");
  EXPECT_TRUE(config->has_vision_part);
  EXPECT_EQ(config->hidden_size, 7168);
  EXPECT_EQ(config->num_layers, 61);
  EXPECT_EQ(config->rope.beta_fast, 32.0);
  EXPECT_DOUBLE_EQ(config->rms_norm_eps, 1e-5);
  EXPECT_EQ(config->quantization.method, QuantizationConfig::Method::kInt4Group);
  EXPECT_TRUE(config->notes.empty()) << config->notes.front();
}

TEST(ModelConfig, BothRopeSpellingsAreTheSame) {
  auto object = boost::json::parse(kMini).as_object();
  auto rope = object["rope_scaling"].as_object();
  rope["rope_type"] = rope["type"];
  rope.erase("type");
  rope["rope_theta"] = object["rope_theta"];
  object.erase("rope_scaling");
  object.erase("rope_theta");
  object["rope_parameters"] = rope;
  const auto renamed = parse_model_config(boost::json::serialize(object));
  ASSERT_TRUE(renamed.has_value()) << renamed.error().message;
  EXPECT_EQ(rope_frequencies(*renamed), rope_frequencies(*parse_model_config(kMini)));
  EXPECT_EQ(attention_softmax_scale(*renamed), attention_softmax_scale(*parse_model_config(kMini)));
  object["rope_scaling"] =
      boost::json::parse(R"({"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 1024})");
  EXPECT_THAT(message_of(boost::json::serialize(object)), HasSubstr("rope_parameters differs from rope_scaling"));
}

TEST(ModelConfig, UnknownRopeKindsAndKeysAreRefused) {
  EXPECT_THAT(refusal("rope_scaling", R"({"type": "longrope", "factor": 4})"),
              HasSubstr("rope_scaling.type 'longrope'"));
  EXPECT_THAT(refusal("rope_scaling", R"({"rope_type": "llama3"})"), HasSubstr("rope_scaling.rope_type 'llama3'"));
  EXPECT_THAT(
      refusal("rope_scaling",
              R"({"type": "yarn", "factor": 4, "original_max_position_embeddings": 1024, "short_factor": [1]})"),
      HasSubstr("short_factor"));
  EXPECT_THAT(refusal("rope_scaling", R"({"type": "yarn", "original_max_position_embeddings": 1024})"),
              HasSubstr("rope_scaling.factor is missing"));
  EXPECT_THAT(refusal("rope_scaling", R"({"type": "yarn", "factor": 4})"),
              HasSubstr("original_max_position_embeddings"));
  EXPECT_THAT(refusal("rope_scaling", R"({"type": "yarn", "rope_type": "default", "factor": 4})"),
              HasSubstr("rope_type is 'default'"));
  refusal("rope_scaling", "[4]");
  const auto plain = parse_model_config(with("rope_scaling", ""));
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->rope.kind, RopeConfig::Kind::kDefault);
  EXPECT_NEAR(attention_softmax_scale(*plain), 1 / std::sqrt(48.0), 1e-12);
}

// Values recomputed from the published formula, per model.
TEST(ModelConfig, YarnFrequenciesAndScales) {
  ModelConfig k26 = *parse_model_config(kK26);
  const auto frequencies = rope_frequencies(k26);
  ASSERT_EQ(frequencies.size(), 32u);
  const std::vector<std::pair<size_t, double>> k26_values = {
      {0, 1},           {8, 6.687403e-2}, {9, 4.377666e-2}, {14, 4.465849e-3}, {19, 1.583750e-4}, {20, 1.807023e-5},
      {31, 4.382206e-7}};
  for (const auto& [i, value] : k26_values) EXPECT_NEAR(frequencies[i], value, value * 1e-6) << i;
  EXPECT_NEAR(attention_softmax_scale(k26), 0.1446796, 1e-7);
  EXPECT_DOUBLE_EQ(rope_amplitude(k26), 1.0);

  ModelConfig thinking = k26;
  thinking.rope.beta_fast = 1;
  const std::vector<std::pair<size_t, double>> thinking_values = {
      {9, 4.768861e-2}, {14, 8.794287e-3}, {19, 1.621760e-3}, {20, 1.807023e-5}, {31, 4.382206e-7}};
  for (const auto& [i, value] : thinking_values) EXPECT_NEAR(rope_frequencies(thinking)[i], value, value * 1e-6) << i;

  ModelConfig instruct = thinking;
  instruct.rope.factor = 32;
  EXPECT_NEAR(rope_frequencies(instruct)[20], 3.614047e-5, 1e-11);
  EXPECT_NEAR(attention_softmax_scale(instruct), 0.1308608, 1e-7);

  ModelConfig deepseek = k26;
  deepseek.rope.theta = 10000;
  deepseek.rope.factor = 40;
  const std::vector<std::pair<size_t, double>> deepseek_values = {
      {8, 1e-1}, {9, 7.498942e-2}, {14, 1.244796e-2}, {19, 1.370514e-3}, {20, 7.905694e-4}, {31, 3.333804e-6}};
  for (const auto& [i, value] : deepseek_values) EXPECT_NEAR(rope_frequencies(deepseek)[i], value, value * 1e-6) << i;
  EXPECT_NEAR(attention_softmax_scale(deepseek), 0.1352338, 1e-7);
}

TEST(ModelConfig, DimensionsThatCannotBeAreRefused) {
  for (const char* key : {"vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads",
                          "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
                          "max_position_embeddings", "num_experts_per_tok", "moe_intermediate_size"}) {
    for (const char* value : {"0", "-1", "1e3", "64.5", "\"64\"", "true", "[64]", "{}", "9223372036854775807",
                              "18446744073709551615", "1e300"})
      refusal(key, value);
    refusal(key, "");
    refusal(key, "null");
  }
}

TEST(ModelConfig, AllViolationsComeInOneMessage) {
  auto object = boost::json::parse(kMini).as_object();
  object["hidden_size"] = -5;
  object["vocab_size"] = "many";
  object.erase("kv_lora_rank");
  const std::string message = message_of(boost::json::serialize(object));
  EXPECT_THAT(message, HasSubstr("hidden_size is -5; allowed: an integer from 1"));
  EXPECT_THAT(message, HasSubstr("vocab_size is 'many'"));
  EXPECT_THAT(message, HasSubstr("kv_lora_rank is missing"));
}

TEST(ModelConfig, RulesBetweenKeys) {
  EXPECT_THAT(refusal("num_experts_per_tok", "385"), HasSubstr("at most n_routed_experts (384)"));
  EXPECT_THAT(refusal("n_group", "5"), HasSubstr("a divisor of n_routed_experts"));
  EXPECT_THAT(refusal("topk_group", "2"), HasSubstr("at most n_group (1)"));
  EXPECT_THAT(refusal("first_k_dense_replace", "9"), HasSubstr("at most num_hidden_layers (8)"));
  EXPECT_THAT(refusal("qk_rope_head_dim", "15"), HasSubstr("even"));
  EXPECT_THAT(refusal("num_key_value_heads", "4"), HasSubstr("num_attention_heads (8)"));
  refusal("eos_token_id", "4096");
  refusal("eos_token_id", "[1, -2]");
  refusal("bos_token_id", "4096");
}

TEST(ModelConfig, APlanThatWouldFillTheMemoryIsRefused) {
  auto object = boost::json::parse(kMini).as_object();
  object["num_hidden_layers"] = 4096;
  object["n_routed_experts"] = 65536;
  EXPECT_THAT(message_of(boost::json::serialize(object)), HasSubstr("65536 in 4096 layers"));
}

TEST(ModelConfig, OtherFunctionsAreRefusedByName) {
  refusal("hidden_act", "\"gelu\"");
  refusal("scoring_func", "\"softmax\"");
  refusal("topk_method", "\"greedy\"");
  refusal("attention_bias", "true");
  refusal("sliding_window", "4096");
  refusal("index_topk", "2048");
  EXPECT_TRUE(parse_model_config(with("sliding_window", "null")).has_value());
  const auto noted = parse_model_config(with("brand_new_key", "7"));
  ASSERT_TRUE(noted.has_value());
  EXPECT_THAT(noted->notes, testing::ElementsAre(HasSubstr("brand_new_key")));
}

TEST(ModelConfig, UnknownArchitecturesListTheKnownOnes) {
  for (const char* type : {"\"deepseek_v32\"", "\"qwen3_moe\"", "\"kimi_k3\"", "7", ""}) {
    EXPECT_THAT(message_of(with("model_type", type)), HasSubstr("DeepseekV3ForCausalLM")) << type;
  }
  EXPECT_THAT(message_of(with("architectures", "[\"LlamaForCausalLM\"]")), HasSubstr("Known: "));
}

TEST(ModelConfig, TextsThatAreNoConfigAreRefused) {
  for (const char* text : {"", "[]", "7", "{", "{}", "null", "{\"text_config\": 7, \"model_type\": \"kimi_k25\"}"})
    EXPECT_FALSE(parse_model_config(text).has_value()) << text;
  EXPECT_FALSE(parse_model_config(std::string(100000, '[')).has_value());
}

std::string with_quantization(const std::string& key, const std::string& value) {
  auto object = boost::json::parse(kMini).as_object();
  auto& weights = object["quantization_config"]
                      .as_object()["config_groups"]
                      .as_object()["group_0"]
                      .as_object()["weights"]
                      .as_object();
  weights[key] = boost::json::parse(value);
  return boost::json::serialize(object);
}

TEST(ModelConfig, QuantizationIsReadStrictly) {
  EXPECT_THAT(message_of(with_quantization("symmetric", "false")), HasSubstr("weights.symmetric"));
  EXPECT_THAT(message_of(with_quantization("actorder", "\"group\"")), HasSubstr("weights.actorder"));
  EXPECT_THAT(message_of(with_quantization("num_bits", "3")), HasSubstr("weights.num_bits"));
  EXPECT_THAT(message_of(with_quantization("group_size", "48")), HasSubstr("weights.group_size"));
  EXPECT_THAT(message_of(with_quantization("type", "\"float\"")), HasSubstr("weights.type"));
  EXPECT_EQ(parse_model_config(with_quantization("num_bits", "8"))->quantization.num_bits, 8);  // the shapes will tell
  EXPECT_THAT(refusal("quantization_config", R"({"quant_method": "awq"})"), HasSubstr("'awq'"));
  EXPECT_THAT(refusal("quantization_config", R"({"quant_method": "fp8", "weight_block_size": [64, 64]})"),
              HasSubstr("weight_block_size"));
  refusal("quantization_config", "7");
  const auto fp8 = parse_model_config(with(
      "quantization_config",
      R"({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"})"));
  ASSERT_TRUE(fp8.has_value()) << fp8.error().message;
  EXPECT_EQ(fp8->announced_format("model.layers.1.self_attn.kv_a_proj_with_mqa"), WeightFormat::kFloat8Block);
  EXPECT_EQ(fp8->announced_format("model.layers.1.mlp.gate"), WeightFormat::kBFloat16);
  EXPECT_EQ(fp8->announced_format("lm_head"), WeightFormat::kBFloat16);
}

TEST(ModelConfig, TheIgnoreListDecidesWhatIsAnnounced) {
  const ModelConfig config = *parse_model_config(kK26);
  EXPECT_EQ(config.announced_format("model.layers.3.mlp.experts.17.gate_proj"), WeightFormat::kInt4Group);
  EXPECT_EQ(config.announced_format("model.layers.3.mlp.shared_experts.gate_proj"), WeightFormat::kBFloat16);
  EXPECT_EQ(config.announced_format("model.layers.0.mlp.down_proj"), WeightFormat::kBFloat16);
  EXPECT_EQ(config.announced_format("model.layers.0.self_attn.o_proj"), WeightFormat::kBFloat16);
  EXPECT_EQ(config.announced_format("model.embed_tokens"), WeightFormat::kBFloat16);
}

TEST(ModulePatterns, MatchFromTheStartAndNeverHang) {
  const ModulePatterns patterns = *ModulePatterns::compile({"lm_head", "re:model\\.layers\\.1\\..*", "re:.*(a|b)x"});
  EXPECT_TRUE(patterns.matches("lm_head"));
  EXPECT_FALSE(patterns.matches("lm_head.weight"));
  EXPECT_TRUE(patterns.matches("model.layers.1.mlp"));
  EXPECT_FALSE(patterns.matches("model.layers.11.mlp"));
  EXPECT_FALSE(patterns.matches("x.model.layers.1.mlp"));
  EXPECT_TRUE(patterns.matches("zzbx"));
  EXPECT_FALSE(ModulePatterns::compile({"re:("}).has_value());
  EXPECT_FALSE(ModulePatterns::compile({"re:" + std::string(2000, 'a')}).has_value());
  const auto slow = ModulePatterns::compile({"re:(.*)*(.*)*(.*)*(.*)*(.*)*!"});
  EXPECT_TRUE(!slow.has_value() || !slow->matches(std::string(60, 'a')));
}

}  // namespace
}  // namespace gimbal
