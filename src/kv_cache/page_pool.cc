#include "kv_cache/page_pool.h"

#include <algorithm>

#include "base/check.h"

namespace gimbal {

PagePool::PagePool(int64_t num_pages, int64_t page_size)
    : page_size_(page_size), num_users_(static_cast<size_t>(num_pages), 0) {
  GIMBAL_CHECK_GE(num_pages, 0);
  GIMBAL_CHECK_GE(page_size, 1);
  free_.reserve(static_cast<size_t>(num_pages));
  for (int64_t page = num_pages - 1; page >= 0; --page) free_.push_back(static_cast<PageId>(page));
}

std::optional<std::vector<PageId>> PagePool::take(int64_t count) {
  GIMBAL_CHECK_GE(count, 0);
  if (count > num_free()) return std::nullopt;
  std::vector<PageId> pages(free_.rbegin(), free_.rbegin() + count);
  free_.resize(free_.size() - static_cast<size_t>(count));
  for (const PageId page : pages) num_users_[static_cast<size_t>(page)] = 1;
  return pages;
}

void PagePool::share(PageId page) {
  GIMBAL_CHECK(page >= 0 && page < num_pages());
  GIMBAL_CHECK_GE(num_users(page), 1);
  ++num_users_[static_cast<size_t>(page)];
}

void PagePool::give_back(std::span<const PageId> pages) {
  for (const PageId page : pages) {
    GIMBAL_CHECK(page >= 0 && page < num_pages());
    GIMBAL_CHECK_GE(num_users(page), 1);
    if (--num_users_[static_cast<size_t>(page)] == 0) free_.push_back(page);
  }
}

bool PagePool::is_consistent() const {
  std::vector<bool> is_free(num_users_.size(), false);
  for (const PageId page : free_) {
    if (is_free[static_cast<size_t>(page)] || num_users(page) != 0) return false;
    is_free[static_cast<size_t>(page)] = true;
  }
  const auto held = std::count_if(num_users_.begin(), num_users_.end(), [](int32_t users) { return users > 0; });
  return held == num_used();
}

}  // namespace gimbal
