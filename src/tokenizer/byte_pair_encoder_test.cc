#include "tokenizer/byte_pair_encoder.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace gimbal {
namespace {

// All bytes, then random joins of earlier tokens over a small alphabet, so that merges chain.
std::vector<std::string> random_vocabulary(std::mt19937& random, size_t num_merges) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  std::set<std::string> seen(tokens.begin(), tokens.end());
  while (tokens.size() < 256 + num_merges) {
    const auto pick = [&] {
      return random() % 2 == 0 && tokens.size() > 256 ? tokens[256 + random() % (tokens.size() - 256)]
                                                      : std::string(1, static_cast<char>('a' + random() % 4));
    };
    std::string joined = pick() + pick();
    if (joined.size() <= 16 && seen.insert(joined).second) tokens.push_back(std::move(joined));
  }
  return tokens;
}

TEST(BytePairEncoder, ShortAndLongPathsAgreeWithTheDefinition) {
  std::mt19937 random(91);
  for (int vocabulary = 0; vocabulary < 6; ++vocabulary) {
    const TokenTable table(random_vocabulary(random, 60));
    MergeScratch scratch;
    for (const size_t size : {1, 2, 3, 10, 60, 127, 128, 129, 400}) {
      for (int round = 0; round < 10; ++round) {
        std::string piece;
        for (size_t i = 0; i < size; ++i) piece += static_cast<char>('a' + random() % (round % 2 == 0 ? 4 : 2));
        std::vector<int32_t> ranks, expected;
        encode_piece(table, piece, scratch, ranks);
        encode_piece_reference(table, piece, expected);
        ASSERT_EQ(ranks, expected) << piece;
      }
    }
  }
}

TEST(BytePairEncoder, AMillionEqualBytesAreNoProblem) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (size_t size = 2; size <= 16; size *= 2) tokens.emplace_back(size, 'a');
  const TokenTable table(tokens);
  MergeScratch scratch;
  std::vector<int32_t> ranks;
  encode_piece(table, std::string(1000001, 'a'), scratch, ranks);
  EXPECT_EQ(ranks.size(), 62501u);
  EXPECT_EQ(ranks.front(), 259);
  EXPECT_EQ(ranks.back(), 'a');
}

}  // namespace
}  // namespace gimbal
