#include "base/file_text.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gimbal {
namespace {

TEST(FileText, ReadsBytesAsTheyAre) {
  const auto path = std::filesystem::path(testing::TempDir()) / "file_text_test.bin";
  std::ofstream(path, std::ios::binary) << std::string("a\0\r\nb", 5);
  const auto text = read_file_text(path);
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(*text, std::string("a\0\r\nb", 5));
  const auto limited = read_file_text(path, 4);
  ASSERT_FALSE(limited.has_value());
  EXPECT_THAT(limited.error().message, testing::HasSubstr("more than the limit of 4 B"));
}

TEST(FileText, NamesMissingFilesAndFolders) {
  EXPECT_THAT(read_file_text("/nonexistent/x").error().message, testing::HasSubstr("/nonexistent/x does not exist"));
  EXPECT_THAT(read_file_text(testing::TempDir()).error().message, testing::HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace gimbal
