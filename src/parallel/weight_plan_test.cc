#include "parallel/weight_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <boost/json.hpp>

namespace gimbal {
namespace {

const std::string kSource = GIMBAL_SOURCE_DIR;

// The headers of the bundled shards: name to {type name, shape}.
std::map<std::string, std::pair<std::string, std::vector<int64_t>>> read_headers() {
  std::map<std::string, std::pair<std::string, std::vector<int64_t>>> tensors;
  for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}) {
    std::ifstream stream(kSource + "/models/kimi-k2-mini/" + name, std::ios::binary);
    uint64_t length = 0;
    stream.read(reinterpret_cast<char*>(&length), sizeof(length));
    std::string header(length, '\0');
    stream.read(header.data(), static_cast<std::streamsize>(length));
    const auto object = boost::json::parse(header).as_object();
    for (const auto& entry : object) {
      if (entry.key() == "__metadata__") continue;
      tensors[std::string(entry.key())] = {std::string(entry.value().at("dtype").as_string()),
                                           boost::json::value_to<std::vector<int64_t>>(entry.value().at("shape"))};
    }
  }
  return tensors;
}

TEST(WeightPlan, IsTheBundledCheckpointTensorForTensor) {
  auto stored = read_headers();
  const WeightPlan plan = make_weight_plan(*read_model_config(kSource + "/models/kimi-k2-mini"));
  uint64_t bytes = 0;
  for (const PlannedWeight& weight : plan.weights) {
    for (const PlannedTensor& tensor : weight.tensors) {
      const auto found = stored.find(tensor.name);
      ASSERT_NE(found, stored.end()) << tensor.name;
      EXPECT_EQ(safetensors_name(tensor.data_types.front()), found->second.first) << tensor.name;
      EXPECT_EQ(tensor.shape, found->second.second) << tensor.name;
      bytes += tensor.bytes();
      stored.erase(found);
    }
  }
  EXPECT_TRUE(stored.empty()) << stored.begin()->first;
  EXPECT_EQ(bytes, plan.total_bytes);
  EXPECT_EQ(plan.total_bytes, 23812864u);  // metadata.total_size of the index
}

// Kimi K2.6, by hand from the published dimensions.
TEST(WeightPlan, BytesOfKimiK26) {
  const WeightPlan plan = make_weight_plan(*read_model_config(kSource + "/share/models/kimi-k2.6-config"));
  std::map<WeightRole, uint64_t> bytes;
  std::map<WeightRole, int> counts;
  for (const PlannedWeight& weight : plan.weights) {
    bytes[weight.role] += weight.bytes();
    ++counts[weight.role];
  }
  constexpr uint64_t kShape = 16;  // weight_shape: two int64
  EXPECT_EQ(counts[WeightRole::kExpertGate], 60 * 384);
  EXPECT_EQ(bytes[WeightRole::kExpertGate] + bytes[WeightRole::kExpertUp] + bytes[WeightRole::kExpertDown],
            uint64_t{23040} * (24772608 + 3 * kShape));
  EXPECT_EQ(bytes[WeightRole::kEmbedding], uint64_t{163840} * 7168 * 2);
  EXPECT_EQ(bytes[WeightRole::kOutputHead], bytes[WeightRole::kEmbedding]);
  EXPECT_EQ(bytes[WeightRole::kDenseGate], uint64_t{18432} * 7168 * 2);
  EXPECT_EQ(bytes[WeightRole::kSharedDown], uint64_t{60} * 2048 * 7168 * 2);
  EXPECT_EQ(bytes[WeightRole::kRouterBias], uint64_t{60} * 384 * 4);
  const uint64_t attention =
      1536ull * 7168 + 1536 + 12288ull * 1536 + 576ull * 7168 + 512 + 16384ull * 512 + 7168ull * 8192;
  uint64_t found = 0;
  for (const WeightRole role :
       {WeightRole::kQueryDown, WeightRole::kQueryNorm, WeightRole::kQueryUp, WeightRole::kKeyValueDown,
        WeightRole::kKeyValueNorm, WeightRole::kKeyValueUp, WeightRole::kAttentionOutput}) {
    found += bytes[role];
  }
  EXPECT_EQ(found, 61 * attention * 2);
  const uint64_t norms = (61 * 2 + 1) * 7168 * 2;
  const uint64_t total = 23040ull * (24772608 + 48) + 2 * 163840ull * 7168 * 2 + 61 * attention * 2 + norms +
                         3ull * 18432 * 7168 * 2 + 60ull * (3 * 2048 * 7168 * 2 + 384 * 7168 * 2 + 384 * 4);
  EXPECT_EQ(plan.total_bytes, total);
}

TEST(WeightPlan, PartialGroupsAndBlocksRoundUp) {
  ModelConfig config = *read_model_config(kSource + "/models/kimi-k2-mini");
  config.hidden_size = 200;
  const auto find = [](const WeightPlan& plan, const std::string& module) {
    for (const PlannedWeight& weight : plan.weights) {
      if (weight.module == module) return weight;
    }
    ADD_FAILURE() << module;
    return PlannedWeight{};
  };
  const PlannedWeight packed = find(make_weight_plan(config), "model.layers.1.mlp.experts.0.gate_proj");
  EXPECT_THAT(packed.tensors[0].shape, testing::ElementsAre(32, 25));
  EXPECT_THAT(packed.tensors[1].shape, testing::ElementsAre(32, 7));
  config.quantization.num_bits = 8;
  EXPECT_THAT(find(make_weight_plan(config), "model.layers.1.mlp.experts.0.gate_proj").tensors[0].shape,
              testing::ElementsAre(32, 50));
  const auto as_float8 = [](std::string_view, WeightFormat) { return WeightFormat::kFloat8Block; };
  const PlannedWeight blocks = find(make_weight_plan(config, as_float8), "model.layers.1.self_attn.q_b_proj");
  EXPECT_THAT(blocks.tensors[1].shape, testing::ElementsAre(3, 1));
  config.tie_word_embeddings = true;
  for (const PlannedWeight& weight : make_weight_plan(config).weights) EXPECT_NE(weight.role, WeightRole::kOutputHead);
}

}  // namespace
}  // namespace gimbal
