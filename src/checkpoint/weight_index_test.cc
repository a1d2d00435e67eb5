#include "checkpoint/weight_index.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_folder_for_test.h"

namespace gimbal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class WeightIndexTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_.path()); }
  void touch(const std::string& file) const { folder_.write(file, ""); }
  std::string refusal() const {
    const auto index = read_weight_index(folder_.path());
    return index ? "accepted" : index.error().message;
  }
  std::string refusal(std::string_view index_text) const {
    folder_.write(kIndexFileName, index_text);
    const std::string message = refusal();
    EXPECT_THAT(message, HasSubstr(kIndexFileName));
    return message;
  }
  CheckpointFolder folder_;
};

TEST(AnnouncedShardCount, ReadsTheEndOfTheName) {
  EXPECT_EQ(announced_shard_count("model-00007-of-00030.safetensors"), 30);
  EXPECT_EQ(announced_shard_count("model.safetensors"), 0);
  EXPECT_EQ(announced_shard_count("model-1-of-x.safetensors"), 0);
  EXPECT_EQ(announced_shard_count("model-1-of-.safetensors"), 0);
  EXPECT_EQ(announced_shard_count("model-1-of-99999999999999999999.safetensors"), 0);
  EXPECT_EQ(announced_shard_count("-of-"), 0);
}

TEST_F(WeightIndexTest, TheIndexIsTheAuthority) {
  for (const char* file : {"a.safetensors", "b.safetensors", "c.safetensors"}) touch(file);
  folder_.write(kIndexFileName, R"({"weight_map":{"x":"b.safetensors","y":"a.safetensors","z":"gone.safetensors"}})");
  const WeightIndex index = read_weight_index(folder_.path()).value();
  EXPECT_TRUE(index.has_index_file);
  EXPECT_THAT(index.shards, ElementsAre("a.safetensors", "b.safetensors"));
  EXPECT_THAT(index.missing_shards, ElementsAre("gone.safetensors"));
  EXPECT_THAT(index.unused_shards, ElementsAre("c.safetensors"));
  EXPECT_EQ(index.shard_of.at("x"), "b.safetensors");
  EXPECT_THAT(index.notes, ElementsAre(AllOf(HasSubstr("ignored"), HasSubstr("c.safetensors"))));
}

TEST_F(WeightIndexTest, OneFileStandsForItself) {
  touch("model.safetensors");
  const WeightIndex index = read_weight_index(folder_.path()).value();
  EXPECT_THAT(index.shards, ElementsAre("model.safetensors"));
  EXPECT_THAT(index.notes, IsEmpty());
}

TEST_F(WeightIndexTest, WithoutAnIndexASetMustBeComplete) {
  touch("model-00001-of-00003.safetensors");
  touch("model-00003-of-00003.safetensors");
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("1 of its 3 shards are missing"), HasSubstr("model-00002-of-00003.safetensors")));
  touch("model-00002-of-00003.safetensors");
  const WeightIndex index = read_weight_index(folder_.path()).value();
  EXPECT_EQ(index.shards.size(), 3u);
  EXPECT_THAT(index.notes, ElementsAre(HasSubstr("complete set of 3 shards")));
  touch("model-00001-of-00001.safetensors");
  EXPECT_THAT(refusal(), HasSubstr("different splits (1 and 3 shards)"));
}

TEST_F(WeightIndexTest, AFolderWithoutWeightsIsRefused) {
  EXPECT_THAT(refusal(), AllOf(HasSubstr("holds no weights"), HasSubstr("found: none")));
  touch("adapter.safetensors");
  EXPECT_THAT(refusal(), HasSubstr("adapter.safetensors"));
}

TEST_F(WeightIndexTest, MalformedIndexFilesAreRefused) {
  EXPECT_THAT(refusal("{"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("it is not an object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("weight_map is missing"));
  EXPECT_THAT(refusal(R"({"weight_map":[]})"), HasSubstr("weight_map is not an object"));
  EXPECT_THAT(refusal(R"({"weight_map":{}})"), HasSubstr("weight_map is empty"));
  EXPECT_THAT(refusal(R"({"weight_map":{"x":3}})"), HasSubstr("file name for tensor x"));
  EXPECT_THAT(refusal("version https://git-lfs.github.com/spec/v1\nsize 5\n"), HasSubstr("Git LFS pointer"));
}

TEST_F(WeightIndexTest, PathsAreNotFollowed) {
  for (const char* name :
       {"../a.safetensors", "/etc/a.safetensors", "sub/a.safetensors", "..", "", "a.bin", "a\\\\b.safetensors"}) {
    EXPECT_THAT(refusal(fmt::format(R"({{"weight_map":{{"x":"{}"}}}})", name)), HasSubstr("not the plain name"))
        << name;
  }
}

}  // namespace
}  // namespace gimbal
