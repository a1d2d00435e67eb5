// PagePool: which KV pages are free, and how many users each of the others has. Numbers only; the memory is in
// KvStorage.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace gimbal {

using PageId = int32_t;

// Not thread-safe: owned by the one scheduler.
class PagePool {
 public:
  PagePool(int64_t num_pages, int64_t page_size);

  int64_t page_size() const { return page_size_; }  // tokens
  int64_t num_pages() const { return static_cast<int64_t>(num_users_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_used() const { return num_pages() - num_free(); }
  int64_t pages_for(int64_t num_tokens) const { return (num_tokens + page_size_ - 1) / page_size_; }

  // `count` pages with one user each, or nullopt when fewer are free (then nothing is taken).
  std::optional<std::vector<PageId>> take(int64_t count);
  // One more user of a page that has some already.
  void share(PageId page);
  int64_t num_users(PageId page) const { return num_users_[static_cast<size_t>(page)]; }
  // One user less for each; pages without users are free. A page that is not held is a programmer's error.
  void give_back(std::span<const PageId> pages);
  void give_back(PageId page) { give_back({&page, 1}); }

  // free + used = total, no page twice in the free list. Checked when idle and after each test.
  bool is_consistent() const;

 private:
  int64_t page_size_;
  std::vector<PageId> free_;  // a stack: the last given back is taken first
  std::vector<int32_t> num_users_;
};

}  // namespace gimbal
