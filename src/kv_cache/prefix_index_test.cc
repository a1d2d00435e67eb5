#include "kv_cache/prefix_index.h"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kv_cache/group_cache.h"

namespace gimbal {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(PrefixIndex, FindsWholePagesOfTheSameSaltOnly) {
  GroupCache cache({.num_pages = 8, .page_size = 2});
  std::vector<PageId> pages = *cache.take(2);
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5};
  cache.index.insert("", tokens, pages);
  EXPECT_EQ(cache.index.num_pages(), 2);  // the half page is not indexed
  EXPECT_THAT(cache.index.take_match("", std::vector<int32_t>{1, 2, 3, 9}), ElementsAre(pages[0]));
  EXPECT_THAT(cache.index.take_match("other", tokens), IsEmpty());
  EXPECT_EQ(cache.index.match_size("", tokens).num_pages, 2);
  EXPECT_EQ(cache.device.num_users(pages[0]), 3);
  EXPECT_EQ(cache.device.num_users(pages[1]), 2);
}

TEST(PrefixIndex, GivesUpTheLongestUnusedLeafFirst) {
  GroupCache cache({.num_pages = 3, .page_size = 1});
  std::vector<PageId> first = *cache.take(2);
  cache.index.insert("", std::vector<int32_t>{1, 2}, first);
  std::vector<PageId> second = *cache.take(1);
  cache.index.insert("", std::vector<int32_t>{7}, second);
  EXPECT_EQ(cache.num_available(), 0);
  cache.index.release(second);
  cache.index.release(first);
  EXPECT_EQ(cache.num_available(), 3);
  EXPECT_THAT(*cache.take(1), ElementsAre(second[0]));  // unused for longer
  EXPECT_THAT(*cache.take(1), ElementsAre(first[1]));   // the leaf, not its parent
  EXPECT_EQ(cache.index.match_size("", std::vector<int32_t>{1, 2}).num_pages, 1);
  EXPECT_EQ(cache.num_evicted, 2);
  EXPECT_EQ(cache.take(2), std::nullopt);
}

TEST(PrefixIndex, TheSameTokensComputedTwiceShareOnePage) {
  GroupCache cache({.num_pages = 4, .page_size = 2});
  std::vector<PageId> a = *cache.take(1);
  std::vector<PageId> b = *cache.take(1);
  const std::vector<int32_t> tokens = {4, 5};
  cache.index.insert("", tokens, a);
  cache.index.insert("", tokens, b);
  EXPECT_EQ(a, b);
  EXPECT_EQ(cache.device.num_free(), 3);
  cache.index.release(a);
  EXPECT_EQ(cache.index.num_unused(), 0);
  cache.index.release(b);
  EXPECT_EQ(cache.index.num_unused(), 1);
}

// Sequences come, match, compute, index and leave in random order; what a match returns must hold the same tokens, and
// the pages balance after every step.
TEST(PrefixIndex, BalancesUnderRandomUse) {
  const unsigned seed = 11;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  GroupCache cache({.num_pages = 40, .page_size = 3});
  std::vector<std::vector<int32_t>> content(40);  // of each page: all tokens up to its end
  struct Held {
    std::vector<int32_t> tokens;
    std::vector<PageId> pages;
  };
  std::vector<Held> held;
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0) {
      std::vector<int32_t> tokens(random() % 20);
      for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 2);
      std::vector<PageId> pages = cache.index.take_match("", tokens);
      for (size_t i = 0; i < pages.size(); ++i) {
        const std::vector<int32_t> expected(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(3 * (i + 1)));
        ASSERT_EQ(content[static_cast<size_t>(pages[i])], expected);
      }
      const auto more =
          cache.take(cache.device.pages_for(static_cast<int64_t>(tokens.size())) - static_cast<int64_t>(pages.size()));
      if (!more) {
        cache.index.release(pages);
      } else {
        pages.insert(pages.end(), more->begin(), more->end());
        for (size_t i = 0; i < pages.size(); ++i) {
          const size_t end = std::min(tokens.size(), 3 * (i + 1));
          content[static_cast<size_t>(pages[i])] = {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(end)};
        }
        if (random() % 4 != 0) cache.index.insert("", tokens, pages);
        held.push_back({std::move(tokens), std::move(pages)});
      }
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      cache.index.release(held.back().pages);
      held.pop_back();
    }
    ASSERT_TRUE(cache.is_consistent());
  }
  for (const Held& one : held) cache.index.release(one.pages);
  EXPECT_EQ(cache.num_used(), 0);
  EXPECT_EQ(cache.num_available(), 40);
}

}  // namespace
}  // namespace gimbal
