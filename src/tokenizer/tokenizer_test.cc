#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tokenizer/incremental_detokenizer.h"

namespace gimbal {
namespace {

Tokenizer mini() { return *Tokenizer::read(std::string(GIMBAL_SOURCE_DIR) + "/models/kimi-k2-mini"); }

std::string text_of(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string text;
  for (const TokenId id : ids) text += tokenizer.token_bytes(id);
  return text;
}

TEST(Tokenizer, SizesAndSpecials) {
  const Tokenizer tokenizer = mini();
  EXPECT_EQ(tokenizer.base_vocab_size(), 3840);
  EXPECT_EQ(tokenizer.vocab_size(), 4096);
  EXPECT_EQ(tokenizer.special_id("<|im_end|>"), 3842);
  EXPECT_EQ(tokenizer.special_id("<|reserved_token_3845|>"), 3845);
  EXPECT_EQ(tokenizer.special_id("nothing"), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(3840));
  EXPECT_FALSE(tokenizer.is_special(3839));
  EXPECT_TRUE(tokenizer.is_skipped_when_decoding(3842));
  EXPECT_FALSE(tokenizer.is_skipped_when_decoding(3862));  // <think>
  EXPECT_EQ(tokenizer.token_bytes(-1), "");
  EXPECT_EQ(tokenizer.token_bytes(4096), "");
  EXPECT_TRUE(tokenizer.notes().empty());
}

TEST(Tokenizer, AnyBytesRoundTrip) {
  const Tokenizer tokenizer = mini();
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (size_t i = random() % 200; i > 0; --i) text += static_cast<char>(random());
    EXPECT_EQ(text_of(tokenizer, tokenizer.encode(text, SpecialTokens::kAsText)), text);
    EXPECT_EQ(text_of(tokenizer, tokenizer.encode(text, SpecialTokens::kRecognized)), text);
  }
}

TEST(Tokenizer, ALowerBoundOfTokensHolds) {
  const Tokenizer tokenizer = mini();
  for (const std::string& text :
       {std::string(1000, ' '), std::string(1000, 'a'), std::string("The quick brown fox <|im_end|> jumps")}) {
    EXPECT_LE(tokenizer.min_tokens_for(text.size()),
              static_cast<int64_t>(tokenizer.encode(text, SpecialTokens::kRecognized).size()));
  }
  EXPECT_EQ(tokenizer.min_tokens_for(0), 0);
  EXPECT_GT(tokenizer.min_tokens_for(200000), 4096);
}

TEST(Tokenizer, ThreadsShareOne) {
  const Tokenizer tokenizer = mini();
  const std::string text =
      "It was a dark and stormy night; the wind's voice \xe4\xb8\x96\xe7\x95\x8c rose 12345 times.";
  const auto expected = tokenizer.encode(text, SpecialTokens::kAsText);
  std::vector<std::thread> threads;
  std::atomic<int> num_equal{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round)
        num_equal += tokenizer.encode(text, SpecialTokens::kAsText) == expected ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_equal.load(), 800);
}

TEST(Tokenizer, SyntheticVocabulariesRoundTrip) {
  const Tokenizer tokenizer = *Tokenizer::synthetic(1024);
  EXPECT_EQ(tokenizer.vocab_size(), 1024);
  EXPECT_EQ(tokenizer.special_id("<|im_end|>"), 770);
  const std::string text = "Hello w300 world \xff\xfe <|im_end|>";
  EXPECT_EQ(text_of(tokenizer, tokenizer.encode(text, SpecialTokens::kRecognized)), text);
  for (TokenId id = 0; id < 1024; ++id) EXPECT_FALSE(tokenizer.token_bytes(id).empty());
  EXPECT_THAT(Tokenizer::synthetic(511).error().message, testing::HasSubstr("at least 512"));
}

TEST(Tokenizer, MissingFilesAreNamed) {
  EXPECT_THAT(Tokenizer::read("/nonexistent").error().message,
              testing::HasSubstr("/nonexistent/tiktoken.model does not exist"));
}

}  // namespace
}  // namespace gimbal
