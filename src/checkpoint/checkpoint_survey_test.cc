#include "checkpoint/checkpoint_survey.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "checkpoint/checkpoint_folder_for_test.h"
#include "checkpoint/shard_writer.h"

namespace gimbal {
namespace {

namespace json = boost::json;

// The dimensions of the largest published models: 61 layers of 384 experts.
ModelConfig make_full_size_config() {
  json::value config = json::parse(kTinyConfig);
  const json::object dimensions = {
      {"vocab_size", 163840},      {"hidden_size", 7168},        {"num_hidden_layers", 61},
      {"n_routed_experts", 384},   {"num_experts_per_tok", 8},   {"moe_intermediate_size", 2048},
      {"q_lora_rank", 1536},       {"intermediate_size", 18432}, {"kv_lora_rank", 512},
      {"num_attention_heads", 64}, {"qk_nope_head_dim", 128},    {"num_key_value_heads", 64},
      {"qk_rope_head_dim", 64},    {"v_head_dim", 128}};
  for (const auto& [key, value] : dimensions) config.as_object()[key] = value;
  config.as_object()["quantization_config"] =
      json::parse(R"({"quant_method": "compressed-tensors", "format": "pack-quantized",
      "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "symmetric": true,
      "strategy": "group", "group_size": 32}}},
      "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]})");
  return parse_model_config(json::serialize(config)).value();
}

// Shards with real headers and holes in place of data, so that they take no disk.
void write_sparse_shards(const CheckpointFolder& folder, const WeightPlan& plan, size_t num_shards) {
  std::vector<std::vector<ShardTensor>> shards(num_shards);
  for (size_t i = 0; i < plan.weights.size(); ++i) {
    const PlannedWeight& weight = plan.weights[i];
    for (size_t k = 0; k < weight.tensors.size(); ++k) {
      shards[i * num_shards / plan.weights.size()].push_back({&weight, k, "language_model." + weight.tensors[k].name});
    }
  }
  json::object weight_map;
  for (size_t i = 0; i < num_shards; ++i) {
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, num_shards);
    const std::string header = make_safetensors_header(shards[i]);
    uint64_t bytes = header.size();
    for (const ShardTensor& tensor : shards[i]) {
      bytes += tensor.weight->tensors[tensor.index].bytes();
      weight_map[tensor.stored_name] = file;
    }
    folder.write(file, header);
    std::filesystem::resize_file(folder.path() / file, bytes);
  }
  folder.write(kIndexFileName, json::serialize(json::object{{"weight_map", std::move(weight_map)}}));
}

TEST(CheckpointSurvey, ReadsTheHeadersOfAFullSizeModel) {
  const ModelConfig config = make_full_size_config();
  const WeightPlan plan = make_weight_plan(config);
  const CheckpointFolder folder;
  std::filesystem::create_directories(folder.path());
  write_sparse_shards(folder, plan, 64);
  const auto start = std::chrono::steady_clock::now();
  const CheckpointSurvey survey = survey_checkpoint(folder.path(), config);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  std::printf("%zu shards, %llu tensors, %.1f GB: %.2f s\n", survey.shards.size(),
              static_cast<unsigned long long>(survey.num_tensors), static_cast<double>(survey.total_bytes) * 1e-9,
              elapsed.count());
  EXPECT_TRUE(survey.problems.empty()) << survey.problems.front().message;
  EXPECT_TRUE(survey.notes.empty()) << survey.notes.front();
  EXPECT_EQ(survey.shards.size(), 64u);
  EXPECT_EQ(survey.num_tensors, 208215u);
  EXPECT_EQ(survey.plan.total_bytes, plan.total_bytes);
}

TEST(CheckpointSurvey, SkipsAnnouncedPredictionLayersOnly) {
  const CheckpointFolder folder;
  ASSERT_TRUE(folder.synthesize().has_value());
  folder.add_tensor(folder.shard_of("model.norm.weight"),
                    {"model.layers.3.eh_proj.weight", DataType::kBFloat16, {1}, "ab"});
  ModelConfig config = read_model_config(folder.path()).value();
  EXPECT_EQ(survey_checkpoint(folder.path(), config).problems.size(), 1u);
  config.num_nextn_predict_layers = 1;
  const CheckpointSurvey survey = survey_checkpoint(folder.path(), config);
  EXPECT_TRUE(survey.problems.empty()) << survey.problems.front().message;
  EXPECT_THAT(survey.notes,
              ::testing::ElementsAre(::testing::HasSubstr("1 tensors of multi-token-prediction layers were skipped")));
}

}  // namespace
}  // namespace gimbal
