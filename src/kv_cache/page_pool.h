// PagePool: which KV pages are free, which are held. Numbers only; the memory is in KvStorage.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace gimbal {

using PageId = int32_t;

// Not thread-safe: owned by the one scheduler.
class PagePool {
 public:
  PagePool(int64_t num_pages, int64_t page_size);

  int64_t page_size() const { return page_size_; }  // tokens
  int64_t num_pages() const { return static_cast<int64_t>(is_used_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_used() const { return num_pages() - num_free(); }
  int64_t pages_for(int64_t num_tokens) const { return (num_tokens + page_size_ - 1) / page_size_; }

  // `count` pages, or nullopt when fewer are free (then nothing is taken).
  std::optional<std::vector<PageId>> take(int64_t count);
  // Gives pages back. A page that is not held is a programmer's error.
  void give_back(const std::vector<PageId>& pages);

  // free + used = total, no page twice in the free list. Checked when idle and after each test.
  bool is_consistent() const;

 private:
  int64_t page_size_;
  std::vector<PageId> free_;  // a stack: the last given back is taken first
  std::vector<bool> is_used_;
};

}  // namespace gimbal
