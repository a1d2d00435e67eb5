#include "kv_cache/kv_storage.h"

#include <gtest/gtest.h>

namespace gimbal {
namespace {

TEST(KvStorage, TokensLieInTheirPageAndLayer) {
  auto storage = KvStorage::allocate({.num_layers = 2, .num_pages = 3, .page_size = 4, .width = 5});
  ASSERT_TRUE(storage.has_value());
  EXPECT_EQ(storage->bytes(), 2u * 3 * 4 * 5 * sizeof(float));
  const std::vector<PageId> pages = {2, 0};
  storage->token(1, pages, 6)[3] = 42.0f;  // second page of the sequence is page 0, third token of it
  EXPECT_EQ(storage->page(1, 0)[2 * 5 + 3], 42.0f);
  EXPECT_EQ(storage->token(0, pages, 6)[3], 0.0f);
}

TEST(KvStorage, PublishedModelSize) {
  EXPECT_EQ(kv_bytes_per_token(61, 576), 2u * 70272);  // Kimi K2 in float32 is twice the bfloat16 figure
}

}  // namespace
}  // namespace gimbal
