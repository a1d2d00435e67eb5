#include "base/git_lfs_pointer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gimbal {
namespace {

constexpr std::string_view kPointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9500000000\n";

TEST(GitLfsPointer, ReadsThePromisedSize) {
  const auto pointer = parse_git_lfs_pointer(kPointer);
  ASSERT_TRUE(pointer.has_value());
  EXPECT_EQ(pointer->promised_bytes, 9500000000u);
}

TEST(GitLfsPointer, AcceptsAPointerWithoutSize) {
  EXPECT_EQ(parse_git_lfs_pointer("version https://git-lfs.github.com/spec/v1\n")->promised_bytes, 0u);
}

TEST(GitLfsPointer, IgnoresOtherFiles) {
  EXPECT_FALSE(parse_git_lfs_pointer("IQ== 0\n").has_value());
  EXPECT_FALSE(parse_git_lfs_pointer("").has_value());
}

TEST(GitLfsPointer, DescriptionNamesFileAndBothSizes) {
  const std::string text = describe_git_lfs_pointer("m/a.safetensors", 133, *parse_git_lfs_pointer(kPointer));
  EXPECT_THAT(text, testing::HasSubstr("m/a.safetensors is a Git LFS pointer (133 bytes)"));
  EXPECT_THAT(text, testing::HasSubstr("9500000000 bytes"));
}

}  // namespace
}  // namespace gimbal
