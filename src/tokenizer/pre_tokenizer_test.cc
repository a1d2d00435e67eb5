#include "tokenizer/pre_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace gimbal {
namespace {

class PreTokenizerTest : public testing::Test {
 protected:
  std::vector<std::string> split(std::string_view text) const {
    const auto pieces = PreTokenizer(classes_).split(text);
    return {pieces.begin(), pieces.end()};
  }
  CharacterClasses classes_;
  PreTokenizerReference reference_;
};

TEST_F(PreTokenizerTest, KnownCuts) {
  using testing::ElementsAre;
  EXPECT_THAT(split("getUserName"), ElementsAre("get", "User", "Name"));
  EXPECT_THAT(split("iPhone's"), ElementsAre("i", "Phone's"));
  EXPECT_THAT(split("abc\xe4\xb8\x96\xe7\x95\x8c"), ElementsAre("abc", "\xe4\xb8\x96\xe7\x95\x8c"));
  EXPECT_THAT(split("a  b"), ElementsAre("a", " ", " b"));
  EXPECT_THAT(split("12345"), ElementsAre("123", "45"));
  EXPECT_THAT(split("x \n\n  y"), ElementsAre("x", " \n\n", " ", " y"));
  EXPECT_THAT(split("  "), ElementsAre("  "));
}

TEST_F(PreTokenizerTest, IllFormedBytesAreKept) {
  const std::string text = "a\xff\xc3(\xe4\xb8 z";
  std::string joined;
  for (const std::string& piece : split(text)) joined += piece;
  EXPECT_EQ(joined, text);
}

// Random strings over characters of every class the rules name, against the published pattern run by ICU.
TEST_F(PreTokenizerTest, AgreesWithThePublishedPattern) {
  const unsigned seed = 81;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const std::vector<std::string> alphabet = {
      "a",      "b",      "s",          "t",      "d",      "m",          "r",      "e",      "v",      "l",
      "A",      "Z",      "S",          "T",      "R",      "E",          "L",      "'",      "'",      "'s",
      "'re",    "'LL",    "\u017f",     "\u00e9", "\u00c9", "\u01c5",     "\u02b0", "\u0301", "\u0903", "\u20dd",
      "\u4e16", "\u754c", "\u3005",     "\u3007", "\uf900", "\U00020000", "\u3042", "\u30ab", "\uac00", "\u05d0",
      "1",      "2",      "\u0664",     "\u2160", "\u00bd", " ",          " ",      "  ",     "\n",     "\r",
      "\r\n",   "\t",     "\u0085",     "\u00a0", "\u3000", "\u200b",     "\u001c", ".",      ",",      "!",
      "<|",     "\u2014", "\U0001f600", "\u200d", "\u0000x"};
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (size_t i = 1 + random() % 12; i > 0; --i) text += alphabet[random() % alphabet.size()];
    const auto expected = reference_.split(text);
    ASSERT_TRUE(expected.has_value());
    ASSERT_EQ(split(text), *expected) << testing::PrintToString(text);
  }
}

// Every code point alone, behind a letter and before one.
TEST_F(PreTokenizerTest, AgreesOnEveryCodePoint) {
  std::string text;
  std::vector<std::string> blocks;
  for (uint32_t code_point = 1; code_point < 0x110000; ++code_point) {
    if (code_point >= 0xd800 && code_point < 0xe000) continue;
    if (code_point > 0x32000 && code_point % 61 != 0) continue;  // almost unassigned up there
    std::string character;
    if (code_point < 0x80) {
      character = static_cast<char>(code_point);
    } else if (code_point < 0x800) {
      character = {static_cast<char>(0xc0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3f))};
    } else if (code_point < 0x10000) {
      character = {static_cast<char>(0xe0 | code_point >> 12), static_cast<char>(0x80 | (code_point >> 6 & 0x3f)),
                   static_cast<char>(0x80 | (code_point & 0x3f))};
    } else {
      character = {static_cast<char>(0xf0 | code_point >> 18), static_cast<char>(0x80 | (code_point >> 12 & 0x3f)),
                   static_cast<char>(0x80 | (code_point >> 6 & 0x3f)), static_cast<char>(0x80 | (code_point & 0x3f))};
    }
    text += "a" + character + "B" + character + " ";
    if (text.size() > 4000) {
      blocks.push_back(text);
      text.clear();
    }
  }
  blocks.push_back(text);
  for (const std::string& block : blocks) ASSERT_EQ(split(block), *reference_.split(block)) << block.substr(0, 20);
}

}  // namespace
}  // namespace gimbal
