#include "kv_cache/page_pool.h"

#include <random>

#include <gtest/gtest.h>

namespace gimbal {
namespace {

TEST(PagePool, TakesAllOrNothing) {
  PagePool pool(4, 16);
  EXPECT_EQ(pool.pages_for(0), 0);
  EXPECT_EQ(pool.pages_for(16), 1);
  EXPECT_EQ(pool.pages_for(17), 2);
  const auto pages = pool.take(3);
  ASSERT_TRUE(pages.has_value());
  EXPECT_EQ(pool.num_used(), 3);
  EXPECT_EQ(pool.take(2), std::nullopt);
  EXPECT_EQ(pool.num_free(), 1);
  pool.give_back(*pages);
  EXPECT_EQ(pool.num_free(), 4);
  EXPECT_TRUE(pool.is_consistent());
}

TEST(PagePool, PagesBalanceUnderRandomUse) {
  PagePool pool(50, 8);
  std::mt19937 random(5);
  std::vector<std::vector<PageId>> held;
  for (int step = 0; step < 5000; ++step) {
    if (random() % 2 == 0) {
      if (auto pages = pool.take(static_cast<int64_t>(random() % 9))) held.push_back(std::move(*pages));
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      pool.give_back(held.back());
      held.pop_back();
    }
    ASSERT_TRUE(pool.is_consistent());
  }
  for (const auto& pages : held) pool.give_back(pages);
  EXPECT_EQ(pool.num_free(), 50);
}

TEST(PagePoolDeathTest, GivingBackTwiceIsCaught) {
  PagePool pool(2, 8);
  const auto pages = pool.take(1);
  pool.give_back(*pages);
  EXPECT_DEATH(pool.give_back(*pages), "check failed");
}

}  // namespace
}  // namespace gimbal
