#include "tokenizer/vocabulary_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file_text.h"

namespace gimbal {
namespace {

using testing::HasSubstr;

const std::string kFile = *read_file_text(std::string(GIMBAL_SOURCE_DIR) + "/models/kimi-k2-mini/tiktoken.model");

std::string message_of(const std::string& text) {
  const auto tokens = parse_tiktoken_file(text, "tiktoken.model");
  EXPECT_FALSE(tokens.has_value());
  return tokens.has_value() ? std::string() : tokens.error().message;
}

std::string with_line(size_t number, const std::string& line) {
  std::string text;
  size_t current = 1;
  for (size_t begin = 0; begin < kFile.size(); ++current) {
    const size_t end = kFile.find('\n', begin) + 1;
    text += current == number ? line + "\n" : kFile.substr(begin, end - begin);
    begin = end;
  }
  return text;
}

TEST(VocabularyFile, ReadsTheBundledFileInAnyLineStyle) {
  const auto tokens = parse_tiktoken_file(kFile, "tiktoken.model");
  ASSERT_TRUE(tokens.has_value());
  EXPECT_EQ(tokens->size(), 3840u);
  EXPECT_EQ(tokens->front(), "!");
  std::string windows;
  for (const char c : kFile) windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  EXPECT_EQ(*parse_tiktoken_file(windows + "\n\n", "tiktoken.model"), *tokens);
}

TEST(VocabularyFile, NamesTheLineThatIsWrong) {
  EXPECT_THAT(message_of(with_line(17, "IQ== 16")),
              HasSubstr("tiktoken.model, line 17: the token stands in line 1 already"));
  EXPECT_THAT(message_of(with_line(17, "I*== 16")), HasSubstr("line 17: the token is not valid base64"));
  EXPECT_THAT(message_of(with_line(17, "MQ==16")), HasSubstr("line 17: \"base64 rank\" is expected"));
  EXPECT_THAT(message_of(with_line(17, "MQ== x")), HasSubstr("line 17: the rank 'x' is not a number"));
  EXPECT_THAT(message_of(with_line(17, "MQ== -1")), HasSubstr("line 17"));
  EXPECT_THAT(message_of(with_line(17, "MQ== 99")), HasSubstr("the rank is 99, but 16 comes next"));
  EXPECT_THAT(message_of(kFile.substr(0, kFile.find("\n", 500) + 1)), HasSubstr("the file is incomplete"));
  EXPECT_THAT(message_of(""), HasSubstr("holds no tokens"));
}

TEST(VocabularyFile, NamesAGitLfsPointer) {
  const std::string message = message_of("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 2795286\n");
  EXPECT_THAT(message, HasSubstr("line 1"));
  EXPECT_THAT(message, HasSubstr("tiktoken.model is a Git LFS pointer"));
  EXPECT_THAT(message, HasSubstr("not downloaded"));
}

TEST(VocabularyFile, SpecialIdsComeFromTheKeys) {
  const auto slots = parse_special_tokens(
      R"({"added_tokens_decoder": {"1003": {"content": "<b>", "special": false}, "1001": {"content": "<a>"}}})", 1000,
      "t.json");
  ASSERT_TRUE(slots.has_value());
  ASSERT_EQ(slots->size(), 256u);
  EXPECT_EQ((*slots)[1].text, "<a>");
  EXPECT_TRUE((*slots)[1].is_skipped);
  EXPECT_EQ((*slots)[3].text, "<b>");
  EXPECT_FALSE((*slots)[3].is_skipped);
  EXPECT_EQ((*slots)[2].text, "<|reserved_token_1002|>");
}

TEST(VocabularyFile, RefusesSpecialsThatCannotBe) {
  const auto message = [](const std::string& entries) {
    const auto slots = parse_special_tokens("{\"added_tokens_decoder\": " + entries + "}", 1000, "t.json");
    EXPECT_FALSE(slots.has_value()) << entries;
    return slots.has_value() ? std::string() : slots.error().message;
  };
  EXPECT_THAT(message(R"({"999": {"content": "x"}})"), HasSubstr("outside the special slots 1000 to 1255"));
  EXPECT_THAT(message(R"({"1256": {"content": "x"}})"), HasSubstr("outside the special slots"));
  EXPECT_THAT(message(R"({"10x": {"content": "x"}})"), HasSubstr("not a token id"));
  EXPECT_THAT(message(R"({"1000": {"content": ""}})"), HasSubstr("not empty"));
  EXPECT_THAT(message(R"({"1000": {"content": 7}})"), HasSubstr("content"));
  EXPECT_THAT(message(R"({"1000": 7})"), HasSubstr("content"));
  EXPECT_THAT(message(R"({"1000": {"content": "x", "special": 1}})"), HasSubstr("special"));
  EXPECT_THAT(message(R"({"1000": {"content": "x"}, "1001": {"content": "x"}})"), HasSubstr("two ids, 1000 and 1001"));
  EXPECT_THAT(message("[]"), HasSubstr("must be an object"));
}

}  // namespace
}  // namespace gimbal
