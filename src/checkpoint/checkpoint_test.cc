#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_folder_for_test.h"
#include "checkpoint/value_check.h"

namespace gimbal {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kPacked = "model.layers.1.mlp.experts.0.gate_proj.weight_packed";
constexpr const char* kNorm = "model.norm.weight";

Result<Checkpoint> open_folder(const fs::path& path) {
  GIMBAL_ASSIGN_OR_RETURN(const ModelConfig config, read_model_config(path));
  return Checkpoint::open(path, config);
}

// A sound int4 checkpoint to be damaged.
class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto written = folder_.synthesize();
    ASSERT_TRUE(written.has_value()) << written.error().message;
    ASSERT_GT(written->num_shards, 1u);
  }

  std::string refusal() const {
    const auto checkpoint = open_folder(folder_.path());
    if (checkpoint) return "accepted";
    EXPECT_EQ(checkpoint.error().kind, ErrorKind::kInvalidRequest);
    EXPECT_LE(std::count(checkpoint.error().message.begin(), checkpoint.error().message.end(), '\n'), 25);
    return checkpoint.error().message;
  }

  std::vector<std::string> notes() const {
    const auto checkpoint = open_folder(folder_.path());
    EXPECT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
    return checkpoint ? checkpoint->notes() : std::vector<std::string>{};
  }

  CheckpointFolder folder_;
};

TEST_F(CheckpointTest, OpensASoundFolder) {
  const auto checkpoint = open_folder(folder_.path());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_THAT(checkpoint->notes(), ElementsAre());
  const StoredTensor& packed = checkpoint->tensor(kPacked);
  EXPECT_EQ(packed.data_type, DataType::kInt32);
  EXPECT_THAT(packed.shape, ElementsAre(32, 8));
  EXPECT_EQ(packed.bytes.size(), 32u * 8 * 4);
  uint64_t bytes = 0;
  for (const PlannedWeight& weight : checkpoint->plan().weights) {
    for (const PlannedTensor& tensor : weight.tensors) bytes += checkpoint->tensor(tensor.name).bytes.size();
  }
  EXPECT_EQ(bytes, checkpoint->plan().total_bytes);
  EXPECT_GT(checkpoint->total_bytes(), bytes);
  EXPECT_TRUE(verify_values(*checkpoint).has_value());
}

TEST(CheckpointOfTheRepository, Opens) {
  const auto checkpoint = open_folder(fs::path(GIMBAL_SOURCE_DIR) / "models/kimi-k2-mini");
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_THAT(checkpoint->notes(), ElementsAre());
  EXPECT_EQ(checkpoint->plan().total_bytes, 23812864u);
  EXPECT_EQ(checkpoint->total_bytes(), 11932144u + 14750792u);
  EXPECT_TRUE(verify_values(*checkpoint).has_value());
}

TEST_F(CheckpointTest, NamesADamagedShard) {
  const std::string file = folder_.shard_of(kNorm);
  const uint64_t size = fs::file_size(folder_.path() / file);
  fs::resize_file(folder_.path() / file, size - 10);
  EXPECT_THAT(refusal(), AllOf(HasSubstr(file), HasSubstr("truncated"), Not(HasSubstr("in no shard"))));
  fs::resize_file(folder_.path() / file, size + 10);
  EXPECT_THAT(refusal(), AllOf(HasSubstr(file), HasSubstr("10 bytes follow"), Not(HasSubstr("in no shard"))));
}

TEST_F(CheckpointTest, NamesGitLfsPointersBriefly) {
  for (const std::string& file : folder_.shards()) {
    folder_.write(file, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9805252136\n");
  }
  EXPECT_THAT(refusal(), AllOf(HasSubstr("Git LFS pointer"), HasSubstr("model-00001-of-"), HasSubstr("9805252136")));
}

TEST_F(CheckpointTest, RefusesAMissingShardAndSaysWhatItCosts) {
  const std::string file = folder_.shard_of(kNorm);
  fs::remove(folder_.path() / file);
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr(kIndexFileName), HasSubstr(file),
                    HasSubstr("None of these tensors is in the files that do exist"), Not(HasSubstr("in no shard"))));
}

TEST_F(CheckpointTest, RefusesAnIndexOfAnotherSplit) {
  folder_.edit_index([](json::object& weight_map) { weight_map[kNorm] = "model-00007-of-00030.safetensors"; });
  EXPECT_THAT(refusal(), AllOf(HasSubstr(kIndexFileName), HasSubstr("model-00007-of-00030.safetensors"),
                               HasSubstr(kNorm), HasSubstr("All these tensors are present in the files that do exist"),
                               HasSubstr("split into 30 shards")));
  folder_.edit_index([](json::object& weight_map) {
    for (auto& entry : weight_map) entry.value() = "model-00001-of-00030.safetensors";
  });
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("model-00001-of-00030.safetensors"), HasSubstr("All these tensors are present")));
}

TEST_F(CheckpointTest, RefusesAnIndexThatPointsAtTheWrongShard) {
  const std::string other = folder_.shard_of(kPacked);
  ASSERT_NE(other, folder_.shard_of(kNorm));
  const std::string real = folder_.shard_of(kNorm);
  folder_.edit_index([&](json::object& weight_map) { weight_map[kNorm] = other; });
  EXPECT_THAT(refusal(), HasSubstr(fmt::format("model.norm.weight is placed in {} and stored in {}", other, real)));
}

TEST_F(CheckpointTest, RefusesATensorThatTheIndexDoesNotName) {
  folder_.edit_index([](json::object& weight_map) { weight_map.erase(kNorm); });
  EXPECT_THAT(refusal(), AllOf(HasSubstr("does not name"), HasSubstr(kNorm)));
}

TEST_F(CheckpointTest, RefusesIndexEntriesThatNoShardHolds) {
  folder_.edit_index(
      [&](json::object& weight_map) { weight_map["model.extra.weight"] = "model-00001-of-00099.safetensors"; });
  EXPECT_THAT(refusal(), HasSubstr("model.extra.weight"));
  folder_.edit_index([&](json::object& weight_map) { weight_map["model.extra.weight"] = weight_map[kNorm]; });
  EXPECT_THAT(refusal(), AllOf(HasSubstr("names 1 tensors that no shard holds"), HasSubstr("model.extra.weight")));
}

TEST_F(CheckpointTest, RefusesATensorInTwoShards) {
  const std::string other = folder_.shard_of(kPacked);
  folder_.add_tensor(other, {kNorm, DataType::kBFloat16, {64}, std::string(128, '\0')});
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("model.norm.weight is stored twice"), HasSubstr(other),
                    HasSubstr(folder_.shard_of(kNorm)), HasSubstr("the index names " + folder_.shard_of(kNorm))));
}

TEST_F(CheckpointTest, RefusesTheSameTensorUnderTwoSpellings) {
  folder_.add_tensor(folder_.shard_of(kNorm),
                     {"language_model.model.norm.weight", DataType::kBFloat16, {64}, std::string(128, '\0')});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("stored twice"), HasSubstr("language_model.model.norm.weight")));
}

TEST_F(CheckpointTest, ListsAllMissingTensorsInOneMessage) {
  folder_.edit_tensors(
      [](TestTensor& tensor) { return !tensor.name.ends_with("gate_proj.weight_packed") && tensor.name != kNorm; });
  // Without its packed words a matrix counts as the announced int4.
  EXPECT_THAT(refusal(), AllOf(HasSubstr("9 tensors that config.json asks for are in no shard"),
                               HasSubstr("model.layers.{1-2}.mlp.experts.{0-3}.gate_proj.weight_packed (8 tensors)"),
                               HasSubstr(kNorm), HasSubstr("The index names 9 of them")));
}

TEST_F(CheckpointTest, RefusesAWrongType) {
  folder_.edit_tensors([](TestTensor& tensor) {
    if (tensor.name == kNorm) tensor.data_type = DataType::kInt16;
    return true;
  });
  EXPECT_THAT(refusal(), HasSubstr("model.norm.weight has type I16, expected BF16 or"));
}

TEST_F(CheckpointTest, RefusesAWrongShapeWithTheKeyOfTheConfig) {
  folder_.edit_config([](json::object& config) { config["intermediate_size"] = 192; });
  EXPECT_THAT(refusal(), AllOf(HasSubstr("model.layers.0.mlp.gate_proj.weight has shape [128, 64], expected [192, 64]"),
                               HasSubstr("intermediate_size 192")));
}

TEST_F(CheckpointTest, CountsTensorsThatFailAlike) {
  folder_.edit_config([](json::object& config) {
    config["quantization_config"].at("config_groups").at("group_0").at("weights").as_object()["num_bits"] = 8;
  });
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("gate_proj.weight_packed has shape [32, 8], expected [32, 16]"), HasSubstr("num_bits 8"),
                    HasSubstr("fits num_bits 4"), HasSubstr("23 more weight_packed tensors differ in this way")));
}

TEST_F(CheckpointTest, WhatIsStoredDecidesOnQuantization) {
  folder_.edit_config(
      [](json::object& config) { config["quantization_config"].as_object()["ignore"] = json::array(); });
  EXPECT_THAT(notes(), ElementsAre(AllOf(HasSubstr("config.json and the tensors disagree"), HasSubstr("int4 group"),
                                         HasSubstr("bfloat16"))));
  folder_.edit_config([](json::object& config) { config.erase("quantization_config"); });
  EXPECT_THAT(notes(), ElementsAre(AllOf(HasSubstr("24 matrices are announced as bfloat16 and stored as int4 group"))));
}

TEST_F(CheckpointTest, RefusesStrayTensors) {
  folder_.add_tensor(folder_.shard_of(kNorm), {"model.layers.1.extra.bias", DataType::kBFloat16, {1}, "ab"});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("1 tensors have no place"), HasSubstr("model.layers.1.extra.bias")));
}

TEST_F(CheckpointTest, RefusesOtherKindsOfQuantization) {
  folder_.add_tensor(folder_.shard_of(kNorm),
                     {"model.layers.1.mlp.experts.0.gate_proj.weight_zero_point", DataType::kInt32, {1}, "abcd"});
  EXPECT_THAT(refusal(), AllOf(HasSubstr("asymmetric"), HasSubstr("weight_zero_point")));
}

TEST_F(CheckpointTest, RefusesAWrongWeightShapeValue) {
  folder_.edit_tensors([](TestTensor& tensor) {
    if (tensor.name == "model.layers.1.mlp.experts.0.gate_proj.weight_shape") tensor.bytes[0] = 33;
    return true;
  });
  EXPECT_THAT(refusal(), HasSubstr("gate_proj.weight_shape says [33, 64], config.json asks for [32, 64]"));
}

TEST_F(CheckpointTest, TakesWeightShapesOfBothIntegerTypes) {
  folder_.edit_tensors([](TestTensor& tensor) {
    if (!tensor.name.ends_with("weight_shape")) return true;
    const bool is_long = tensor.data_type == DataType::kInt64;
    const size_t size = is_long ? 8 : 4;
    std::string bytes(is_long ? 8 : 16, '\0');
    for (size_t i = 0; i < 2; ++i) bytes[i * (is_long ? 4 : 8)] = tensor.bytes[i * size];
    tensor.data_type = is_long ? DataType::kInt32 : DataType::kInt64;
    tensor.bytes = bytes;
    return true;
  });
  EXPECT_THAT(notes(), ElementsAre());
}

TEST_F(CheckpointTest, SkipsVisionAndRotaryTablesWithANote) {
  const std::string file = folder_.shard_of(kNorm);
  folder_.add_tensor(file, {"vision_tower.blocks.0.weight", DataType::kBFloat16, {512}, std::string(1024, 'x')});
  folder_.add_tensor(file, {"model.layers.0.self_attn.rotary_emb.inv_freq", DataType::kFloat32, {1}, "abcd"});
  EXPECT_THAT(notes(), ElementsAre(HasSubstr("1 vision tensors were skipped"), HasSubstr("1 rotary_emb.inv_freq")));
}

TEST_F(CheckpointTest, TakesAllSpellingsOfNames) {
  folder_.edit_tensors([](TestTensor& tensor) {
    tensor.name = "language_model." + tensor.name.substr(tensor.name.starts_with("model.layers.1") ? 6 : 0);
    return true;
  });
  fs::remove(folder_.path() / kIndexFileName);
  EXPECT_THAT(notes(), ElementsAre(HasSubstr("the complete set of")));
}

TEST_F(CheckpointTest, IgnoresFilesThatTheIndexDoesNotName) {
  folder_.write_shard("stray.safetensors", {{kNorm, DataType::kBFloat16, {64}, std::string(128, '\0')}});
  EXPECT_THAT(notes(), ElementsAre(AllOf(HasSubstr("ignored"), HasSubstr("stray.safetensors"))));
}

TEST_F(CheckpointTest, NamesTheFirstValueThatIsNotFinite) {
  folder_.edit_tensors([](TestTensor& tensor) {
    if (tensor.name == kNorm) tensor.bytes.replace(6, 2, "\x80\x7f");
    return true;
  });
  const auto checkpoint = open_folder(folder_.path());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_THAT(verify_values(*checkpoint).error().message,
              AllOf(HasSubstr("model.norm.weight"), HasSubstr("at index [3]")));
}

TEST_F(CheckpointTest, NamesABadScale) {
  const std::string scale = "model.layers.2.mlp.experts.3.down_proj.weight_scale";
  folder_.edit_tensors([&](TestTensor& tensor) {
    if (tensor.name == scale) tensor.bytes.replace(4, 2, "\xc0\xff");
    return true;
  });
  EXPECT_THAT(verify_values(open_folder(folder_.path()).value()).error().message,
              AllOf(HasSubstr(scale), HasSubstr("[2, 0]")));
}

TEST(CheckpointFolders, WithoutWeightsAreRefused) {
  const CheckpointFolder folder;
  const ModelConfig config = parse_model_config(kTinyConfig).value();
  const auto refusal = [&] { return Checkpoint::open(folder.path(), config).error().message; };
  EXPECT_THAT(refusal(), HasSubstr("does not exist"));
  fs::create_directories(folder.path());
  EXPECT_THAT(refusal(), HasSubstr("holds no weights"));
  EXPECT_THAT(Checkpoint::open("/dev/null", config).error().message, HasSubstr("is not a folder"));
  EXPECT_FALSE(read_model_config(folder.path()).has_value());
}

TEST(CheckpointDummy, EqualsTheFilesThatSynthWrites) {
  for (const std::string quantization : {"int4", "bf16", "fp8"}) {
    const CheckpointFolder folder;
    const auto written = folder.synthesize(quantization);
    ASSERT_TRUE(written.has_value()) << written.error().message;
    const ModelConfig config = read_model_config(folder.path()).value();
    const auto files = Checkpoint::open(folder.path(), config);
    ASSERT_TRUE(files.has_value()) << files.error().message;
    EXPECT_THAT(files->notes(), ElementsAre());
    EXPECT_TRUE(verify_values(*files).has_value());
    const Checkpoint one = Checkpoint::make_dummy(config, 7).value();
    const Checkpoint three = Checkpoint::make_dummy(config, 7, 3).value();
    const Checkpoint other = Checkpoint::make_dummy(config, 8).value();
    ASSERT_EQ(one.plan().weights.size(), files->plan().weights.size());
    size_t num_equal_to_other = 0;
    for (const PlannedWeight& weight : files->plan().weights) {
      for (const PlannedTensor& tensor : weight.tensors) {
        const auto bytes = files->tensor(tensor.name).bytes;
        ASSERT_TRUE(std::ranges::equal(bytes, one.tensor(tensor.name).bytes)) << tensor.name;
        ASSERT_TRUE(std::ranges::equal(bytes, three.tensor(tensor.name).bytes)) << tensor.name;
        EXPECT_EQ(one.tensor(tensor.name).shape, tensor.shape);
        if (!tensor.name.ends_with("weight_shape") && std::ranges::equal(bytes, other.tensor(tensor.name).bytes))
          ++num_equal_to_other;
      }
    }
    EXPECT_EQ(num_equal_to_other, 0u) << quantization;
  }
}

}  // namespace
}  // namespace gimbal
