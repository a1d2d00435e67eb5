#include "cli/jsonl_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace gimbal {
namespace {

using testing::HasSubstr;

class JsonlInputTest : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    const std::string path = testing::TempDir() + "jsonl_input_test.jsonl";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  Result<std::vector<TokenId>> tokens(const std::string& line) {
    const auto lines = read_json_lines(write(line));
    EXPECT_TRUE(lines.has_value());
    return read_line_tokens(lines->front(), {.tokenizer = &tokenizer_, .vocab_size = 4096});
  }
  Tokenizer tokenizer_ = *Tokenizer::read(std::string(GIMBAL_SOURCE_DIR) + "/models/kimi-k2-mini");
};

TEST_F(JsonlInputTest, SkipsBlankLinesAndNamesTheWrongOne) {
  const auto lines = read_json_lines(write("{\"id\": 1}\n\n  \r\n{\"id\": \"b\"}"));
  ASSERT_TRUE(lines.has_value());
  ASSERT_EQ(lines->size(), 2u);
  EXPECT_EQ(*read_line_id((*lines)[0]), "1");
  EXPECT_EQ(*read_line_id((*lines)[1]), "b");
  EXPECT_THAT(read_json_lines(write("{}\n{oops\n")).error().message, HasSubstr("line 2"));
  EXPECT_THAT(read_json_lines(write("{}\n[1]\n")).error().message, HasSubstr("line 2: a JSON object is needed"));
  EXPECT_THAT(read_json_lines(write("\n")).error().message, HasSubstr("holds no lines"));
  EXPECT_THAT(read_json_lines("/nonexistent").error().message, HasSubstr("does not exist"));
}

TEST_F(JsonlInputTest, TakesIdsOrText) {
  EXPECT_EQ(*tokens(R"({"ids": [1, 4095]})"), (std::vector<TokenId>{1, 4095}));
  EXPECT_EQ(tokens(R"({"text": "Hello"})")->size(), tokenizer_.encode("Hello", SpecialTokens::kAsText).size());
  EXPECT_THAT(tokens(R"({"ids": [4096]})").error().message, HasSubstr("holds 4096"));
  EXPECT_THAT(tokens(R"({"ids": [-1]})").error().message, HasSubstr("holds -1"));
  EXPECT_THAT(tokens(R"({"ids": [1.5]})").error().message, HasSubstr("not an integer"));
  EXPECT_THAT(tokens(R"({"ids": [1], "text": "x"})").error().message, HasSubstr("exactly one"));
  EXPECT_THAT(tokens(R"({})").error().message, HasSubstr("exactly one"));
  EXPECT_THAT(tokens(R"({"text": 7})").error().message, HasSubstr("must be a string"));
}

}  // namespace
}  // namespace gimbal
