#include "checkpoint/synthetic_checkpoint.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_folder_for_test.h"
#include "model_config/model_config.h"

namespace gimbal {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

SyntheticCheckpointArgs make_args(const CheckpointFolder& folder) {
  SyntheticCheckpointArgs args;
  args.config_text = kTinyConfig;
  args.shard_bytes = 60'000;
  args.output = folder.path();
  return args;
}

// All files of a finished checkpoint, by name.
std::map<std::string, std::string> write_and_read(uint64_t seed, int num_threads) {
  const CheckpointFolder folder;
  SyntheticCheckpointArgs args = make_args(folder);
  args.seed = seed;
  args.num_threads = num_threads;
  const auto written = write_synthetic_checkpoint(args);
  EXPECT_TRUE(written.has_value()) << written.error().message;
  std::map<std::string, std::string> files;
  for (const auto& file : fs::directory_iterator(folder.path())) {
    files[file.path().filename()] = folder.read(file.path().filename());
  }
  return files;
}

TEST(SyntheticCheckpoint, SameSeedSameBytesWhateverTheThreads) {
  const auto files = write_and_read(3, 1);
  EXPECT_TRUE(files.contains("config.json"));
  EXPECT_TRUE(files.contains(kIndexFileName));
  EXPECT_TRUE(files == write_and_read(3, 4));
  const auto other = write_and_read(4, 1);
  ASSERT_EQ(other.size(), files.size());
  for (const auto& [name, text] : files) {
    EXPECT_EQ(name.ends_with(".safetensors"), text != other.at(name)) << name;
  }
}

TEST(SyntheticCheckpoint, ReportsProgressAndSizes) {
  const CheckpointFolder folder;
  SyntheticCheckpointArgs args = make_args(folder);
  uint64_t last = 0;
  uint64_t total = 0;
  args.on_progress = [&](uint64_t done, uint64_t of) {
    EXPECT_GE(done, last);
    last = done;
    total = of;
  };
  const SyntheticCheckpoint written = write_synthetic_checkpoint(args).value();
  EXPECT_EQ(last, written.tensor_bytes);
  EXPECT_EQ(total, written.tensor_bytes);
  uint64_t num_tensors = 0;
  uint64_t bytes = 0;
  for (const std::string& file : folder.shards()) {
    for (const TestTensor& tensor : folder.read_shard(file)) {
      ++num_tensors;
      bytes += tensor.bytes.size();
    }
  }
  EXPECT_EQ(num_tensors, written.num_tensors);
  EXPECT_EQ(bytes, written.tensor_bytes);
  EXPECT_EQ(folder.shards().size(), written.num_shards);
}

TEST(SyntheticCheckpoint, ElementsAreAligned) {
  const CheckpointFolder folder;
  ASSERT_TRUE(folder.synthesize().has_value());
  for (const std::string& file : folder.shards()) {
    const auto entries = read_safetensors_header(folder.path() / file).value();
    for (const SafetensorsEntry& entry : entries) {
      EXPECT_EQ(entry.begin % static_cast<uint64_t>(size_of(entry.data_type)), 0u) << entry.name;
    }
  }
}

TEST(SyntheticCheckpoint, RewritesTheQuantizationConfig) {
  const std::map<std::string, QuantizationConfig::Method> methods = {{"int4", QuantizationConfig::Method::kInt4Group},
                                                                     {"fp8", QuantizationConfig::Method::kFloat8Block},
                                                                     {"bf16", QuantizationConfig::Method::kNone}};
  for (const auto& [from, from_method] : methods) {
    const CheckpointFolder source;
    ASSERT_TRUE(source.synthesize(from).has_value());
    EXPECT_EQ(read_model_config(source.path()).value().quantization.method, from_method);
    for (const auto& [to, to_method] : methods) {
      const CheckpointFolder folder;
      const auto written = folder.synthesize(to, source.read("config.json"));
      ASSERT_TRUE(written.has_value()) << written.error().message;
      EXPECT_EQ(read_model_config(folder.path()).value().quantization.method, to_method) << from << " to " << to;
    }
  }
}

TEST(SyntheticCheckpoint, CopiesTokenizerFiles) {
  const CheckpointFolder folder;
  fs::create_directories(folder.root() / "tokenizer");
  std::ofstream(folder.root() / "tokenizer" / "tiktoken.model") << "abc";
  SyntheticCheckpointArgs args = make_args(folder);
  args.tokenizer_dir = folder.root() / "tokenizer";
  ASSERT_TRUE(write_synthetic_checkpoint(args).has_value());
  EXPECT_EQ(folder.read("tiktoken.model"), "abc");
}

TEST(SyntheticCheckpoint, LeavesNothingWhenItFails) {
  const CheckpointFolder folder;
  SyntheticCheckpointArgs args = make_args(folder);
  args.tokenizer_dir = folder.root() / "absent";
  EXPECT_THAT(write_synthetic_checkpoint(args).error().message, HasSubstr("holds no tokenizer files"));
  EXPECT_TRUE(fs::is_empty(folder.root()));
}

TEST(SyntheticCheckpoint, OverwritesNothing) {
  const CheckpointFolder folder;
  fs::create_directories(folder.path());
  folder.write("precious", "x");
  EXPECT_THAT(write_synthetic_checkpoint(make_args(folder)).error().message, HasSubstr("not an empty folder"));
  EXPECT_EQ(folder.read("precious"), "x");
  fs::remove(folder.path() / "precious");
  EXPECT_TRUE(write_synthetic_checkpoint(make_args(folder)).has_value());
}

TEST(SyntheticCheckpoint, RefusesMoreThanTheDiskHolds) {
  const CheckpointFolder folder;
  SyntheticCheckpointArgs args = make_args(folder);
  boost::json::value config = boost::json::parse(kTinyConfig);
  config.as_object()["vocab_size"] = 1'000'000;
  config.as_object()["hidden_size"] = 65536;
  config.as_object()["num_hidden_layers"] = 100;
  config.as_object()["n_routed_experts"] = 256;
  config.as_object()["moe_intermediate_size"] = 65536;
  args.config_text = boost::json::serialize(config);
  const auto written = write_synthetic_checkpoint(args);
  ASSERT_FALSE(written.has_value());
  EXPECT_THAT(written.error().message, AllOf(HasSubstr("of disk"), HasSubstr("offers"), HasSubstr("missing")));
  EXPECT_TRUE(fs::is_empty(folder.root()));
}

TEST(SyntheticCheckpoint, RefusesBadArguments) {
  const CheckpointFolder folder;
  SyntheticCheckpointArgs args = make_args(folder);
  args.quantization = "int3";
  EXPECT_THAT(write_synthetic_checkpoint(args).error().message, HasSubstr("offered are int4, bf16 and fp8"));
  args = make_args(folder);
  args.config_text = "[1]";
  EXPECT_THAT(write_synthetic_checkpoint(args).error().message, HasSubstr("must hold a JSON object"));
  args.config_text = "{}";
  EXPECT_FALSE(write_synthetic_checkpoint(args).has_value());
}

}  // namespace
}  // namespace gimbal
