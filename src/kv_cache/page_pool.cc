#include "kv_cache/page_pool.h"

#include "base/check.h"

namespace gimbal {

PagePool::PagePool(int64_t num_pages, int64_t page_size)
    : page_size_(page_size), is_used_(static_cast<size_t>(num_pages), false) {
  GIMBAL_CHECK_GE(num_pages, 1);
  GIMBAL_CHECK_GE(page_size, 1);
  free_.reserve(static_cast<size_t>(num_pages));
  for (int64_t page = num_pages - 1; page >= 0; --page) free_.push_back(static_cast<PageId>(page));
}

std::optional<std::vector<PageId>> PagePool::take(int64_t count) {
  GIMBAL_CHECK_GE(count, 0);
  if (count > num_free()) return std::nullopt;
  std::vector<PageId> pages;
  pages.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    pages.push_back(free_.back());
    is_used_[static_cast<size_t>(free_.back())] = true;
    free_.pop_back();
  }
  return pages;
}

void PagePool::give_back(const std::vector<PageId>& pages) {
  for (const PageId page : pages) {
    GIMBAL_CHECK(page >= 0 && page < num_pages());
    GIMBAL_CHECK(is_used_[static_cast<size_t>(page)]);
    is_used_[static_cast<size_t>(page)] = false;
    free_.push_back(page);
  }
}

bool PagePool::is_consistent() const {
  std::vector<bool> seen(is_used_.size(), false);
  for (const PageId page : free_) {
    if (page < 0 || page >= num_pages() || is_used_[static_cast<size_t>(page)] || seen[static_cast<size_t>(page)])
      return false;
    seen[static_cast<size_t>(page)] = true;
  }
  int64_t used = 0;
  for (const bool is_used : is_used_) used += is_used ? 1 : 0;
  return used + num_free() == num_pages();
}

}  // namespace gimbal
