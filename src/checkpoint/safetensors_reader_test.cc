#include "checkpoint/safetensors_reader.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gimbal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string with_length(std::string_view json, uint64_t length) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>((length >> (8 * i)) & 0xff);
  return text.append(json);
}
std::string with_length(std::string_view json) { return with_length(json, json.size()); }

// Parses `json` as the header of a file with `data_bytes` behind it.
Result<std::vector<SafetensorsEntry>> parse(std::string_view json, uint64_t data_bytes) {
  return parse_safetensors_header(with_length(json), 8 + json.size() + data_bytes, "a.safetensors");
}

std::string refusal(std::string_view json, uint64_t data_bytes) {
  const auto entries = parse(json, data_bytes);
  if (entries) return "accepted";
  EXPECT_EQ(entries.error().kind, ErrorKind::kInvalidRequest);
  EXPECT_THAT(entries.error().message, HasSubstr("a.safetensors"));
  return entries.error().message;
}

std::string entry(std::string_view name, std::string_view shape, int begin, int end) {
  return fmt::format(R"("{}":{{"dtype":"F32","shape":{},"data_offsets":[{},{}]}})", name, shape, begin, end);
}

TEST(SafetensorsReader, ReadsEntriesInOrderOfOffset) {
  const std::string json =
      R"({"__metadata__":{"format":"pt","a":"b"},"late":{"dtype":"I64","shape":[2],"data_offsets":[6,22]},)"
      R"("early":{"data_offsets":[0,6],"shape":[3,1],"dtype":"BF16"},"none":{"dtype":"U8","shape":[0],)"
      R"("data_offsets":[22,22]},"scalar":{"dtype":"F32","shape":[],"data_offsets":[22,26]}}    )";
  const auto entries = parse(json, 26);
  ASSERT_TRUE(entries.has_value()) << entries.error().message;
  ASSERT_EQ(entries->size(), 4u);
  const uint64_t data = 8 + json.size();
  EXPECT_EQ((*entries)[0].name, "early");
  EXPECT_EQ((*entries)[0].data_type, DataType::kBFloat16);
  EXPECT_THAT((*entries)[0].shape, ElementsAre(3, 1));
  EXPECT_EQ((*entries)[0].begin, data);
  EXPECT_EQ((*entries)[0].bytes, 6u);
  EXPECT_EQ((*entries)[1].name, "late");
  EXPECT_EQ((*entries)[1].begin, data + 6);
  EXPECT_EQ((*entries)[2].name, "none");
  EXPECT_EQ((*entries)[3].name, "scalar");
  EXPECT_EQ((*entries)[3].bytes, 4u);
}

TEST(SafetensorsReader, AcceptsAFileWithoutTensors) {
  EXPECT_EQ(parse("{}", 0).value().size(), 0u);
  EXPECT_EQ(parse(R"({"__metadata__":{}})", 0).value().size(), 0u);
}

TEST(SafetensorsReader, RefusesBadLengths) {
  const auto message = [](std::string_view text, uint64_t file_bytes) {
    return parse_safetensors_header(text, file_bytes, "a.safetensors").error().message;
  };
  EXPECT_THAT(message("abc", 3), AllOf(HasSubstr("3 bytes are too few"), HasSubstr("a.safetensors")));
  EXPECT_THAT(message(with_length("{}", 99), 10), AllOf(HasSubstr("says 99 bytes"), HasSubstr("has 10 bytes in all")));
  EXPECT_THAT(message(with_length("{}", ~uint64_t{0}), 10), HasSubstr("says 18446744073709551615 bytes"));
  EXPECT_THAT(message(with_length("{}", 200'000'000), 300'000'000),
              HasSubstr("more than the 100000000 that safetensors allows"));
  EXPECT_THAT(message(with_length("{}", 50), 100), HasSubstr("the header has 50 bytes, of which 2 were given"));
}

TEST(SafetensorsReader, RefusesBadJson) {
  EXPECT_THAT(refusal("", 4), HasSubstr("does not start with '{'"));
  EXPECT_THAT(refusal(" {}", 0), HasSubstr("does not start with '{'"));
  EXPECT_THAT(refusal("{\"a\":", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{} x", 0), HasSubstr("only blanks may"));
  EXPECT_THAT(refusal("{\"a\":{\"dtype\":\"F32\",}}", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{\"\xff\":{}}", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(R"({"a":7})", 0), HasSubstr("a must be an object, found a number"));
  EXPECT_THAT(refusal(R"({"a":[7]})", 0), HasSubstr("a must be an object, found an array"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"a":1}})", 0), HasSubstr("__metadata__ may hold strings only"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1]}})", 4), HasSubstr("tensor a has no data_offsets"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"shape":[1],"data_offsets":[0,4]}})", 4),
              HasSubstr("'shape' twice"));
  EXPECT_THAT(refusal(R"({"a":{"type":"F32"}})", 0), HasSubstr("unknown key 'type'"));
  EXPECT_THAT(refusal("{\"a\":{\"shape\":" + std::string(100, '[') + "}}", 0), HasSubstr("a.safetensors"));
  EXPECT_THAT(refusal("{\"" + std::string(5000, 'a') + "\":{}}", 0), HasSubstr("longer than 4096 bytes"));
}

TEST(SafetensorsReader, RefusesBadTypesAndShapes) {
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F7","shape":[1],"data_offsets":[0,4]}})", 4),
              HasSubstr("tensor a has the unknown element type 'F7'"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":3,"shape":[1],"data_offsets":[0,4]}})", 4),
              HasSubstr("dtype of tensor a must be a string"));
  EXPECT_THAT(refusal("{" + entry("a", "[-1]", 0, 4) + "}", 4),
              HasSubstr("tensor a has the negative number -1 in its shape"));
  EXPECT_THAT(refusal("{" + entry("a", "[1.5]", 0, 4) + "}", 4), HasSubstr("must hold whole numbers"));
  EXPECT_THAT(refusal("{" + entry("a", "[\"1\"]", 0, 4) + "}", 4), HasSubstr("found a string"));
  EXPECT_THAT(refusal("{" + entry("a", "[1e3]", 0, 4) + "}", 4), HasSubstr("whole numbers"));
  EXPECT_THAT(refusal("{" + entry("a", "[[1]]", 0, 4) + "}", 4), HasSubstr("found an array"));
  EXPECT_THAT(refusal("{" + entry("a", "[4294967296,4294967296,4294967296]", 0, 4) + "}", 4),
              HasSubstr("does not fit in 64 bits"));
  EXPECT_THAT(refusal("{" + entry("a", "[18446744073709551615]", 0, 4) + "}", 4),
              HasSubstr("impossible number 18446744073709551615"));
  EXPECT_THAT(refusal("{" + entry("a", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", 0, 4) + "}", 4),
              HasSubstr("more than 16 dimensions"));
  EXPECT_THAT(refusal("{" + entry("a", "[2]", 0, 4) + "}", 4),
              AllOf(HasSubstr("tensor a of type F32 and shape [2] takes 8 bytes"), HasSubstr("[0, 4] hold 4")));
}

TEST(SafetensorsReader, RefusesBadOffsets) {
  EXPECT_THAT(refusal("{" + entry("a", "[1]", 4, 0) + "}", 4), HasSubstr("[4, 0] of tensor a end before they begin"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4),
              HasSubstr("has 1 numbers; two are needed"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}})", 4), HasSubstr("has 3 numbers"));
  EXPECT_THAT(refusal("{" + entry("a", "[1]", 0, 4) + "," + entry("b", "[1]", 2, 6) + "}", 6),
              HasSubstr("a and b overlap by 2 bytes"));
  EXPECT_THAT(refusal("{" + entry("a", "[1]", 0, 4) + "," + entry("b", "[1]", 0, 4) + "}", 4),
              HasSubstr("a and b overlap"));
  EXPECT_THAT(refusal("{" + entry("a", "[1]", 0, 4) + "," + entry("b", "[1]", 6, 10) + "}", 10),
              HasSubstr("2 bytes between a and tensor b belong to no tensor"));
  EXPECT_THAT(refusal("{" + entry("a", "[1]", 4, 8) + "}", 8), HasSubstr("4 bytes between the header and tensor a"));
  EXPECT_THAT(
      refusal("{" + entry("a", "[2]", 0, 8) + "}", 5),
      AllOf(HasSubstr("tensor a ends at byte 8 of the data section, which has only 5"), HasSubstr("truncated")));
  EXPECT_THAT(refusal("{" + entry("a", "[1]", 0, 4) + "}", 7), HasSubstr("3 bytes follow a"));
}

TEST(SafetensorsReader, RefusesNamesThatOccurTwice) {
  EXPECT_THAT(refusal("{" + entry("same", "[1]", 0, 4) + "," + entry("same", "[1]", 4, 8) + "}", 8),
              HasSubstr("tensor same is named twice"));
  EXPECT_THAT(refusal("{" + entry("same", "[1]", 0, 4) + "," + entry("s\\u0061me", "[1]", 4, 8) + "}", 8),
              HasSubstr("tensor same is named twice"));
}

class SafetensorsFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("safetensors_file_test.{}", getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path write(const std::string& name, std::string_view text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  std::filesystem::path folder_;
};

TEST_F(SafetensorsFile, ReadsTheHeaderOfAFile) {
  const auto path = write("a.safetensors", with_length("{" + entry("a", "[1]", 0, 4) + "}") + "1234");
  const auto entries = read_safetensors_header(path);
  ASSERT_TRUE(entries.has_value()) << entries.error().message;
  EXPECT_EQ(entries->front().name, "a");
}

TEST_F(SafetensorsFile, NamesAGitLfsPointer) {
  const auto path =
      write("b.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9805252136\n");
  EXPECT_THAT(read_safetensors_header(path).error().message,
              AllOf(HasSubstr("b.safetensors is a Git LFS pointer"), HasSubstr("9805252136 bytes"),
                    HasSubstr("not downloaded")));
}

TEST_F(SafetensorsFile, RefusesWhatIsNoReadableFile) {
  EXPECT_THAT(read_safetensors_header(folder_ / "absent").error().message, HasSubstr("No such file"));
  EXPECT_THAT(read_safetensors_header(folder_).error().message, HasSubstr("not a regular file"));
  EXPECT_THAT(read_safetensors_header(write("empty", "")).error().message, HasSubstr("0 bytes are too few"));
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(read_safetensors_header(folder_ / "pipe").error().message, HasSubstr("not a regular file"));
}

TEST_F(SafetensorsFile, SaysWhyAFileCannotBeOpened) {
  if (geteuid() == 0) GTEST_SKIP() << "root reads files without permission";
  const auto path = write("locked", "x");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  EXPECT_THAT(read_safetensors_header(path).error().message, HasSubstr("Permission denied"));
}

}  // namespace
}  // namespace gimbal
