// GroupCache: the KV pages of one DP group: the pool on the device, the places in host memory to which preempted
// sequences move, and the index of prompts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kv_cache/page_pool.h"
#include "kv_cache/prefix_index.h"

namespace gimbal {

struct CacheShape {
  int64_t num_groups = 1;
  int64_t num_pages = 0;       // per group
  int64_t num_host_pages = 0;  // per group
  int64_t page_size = 0;       // tokens
};

class GroupCache {
 public:
  explicit GroupCache(const CacheShape& shape)
      : device(shape.num_pages, shape.page_size), host(shape.num_host_pages, shape.page_size), index(device) {}
  GroupCache(const GroupCache&) = delete;
  GroupCache& operator=(const GroupCache&) = delete;

  // Pages that could be taken now: free ones and those that only the index uses.
  int64_t num_available() const { return device.num_free() + index.num_unused(); }
  // Pages that sequences use.
  int64_t num_used() const { return device.num_used() - index.num_unused(); }

  // `count` pages with one user, giving up unused indexed ones where needed; nullopt (nothing is taken) when too few
  // are available.
  std::optional<std::vector<PageId>> take(int64_t count) {
    if (count > num_available()) return std::nullopt;
    if (count > device.num_free()) num_evicted += index.evict(count - device.num_free());
    return device.take(count);
  }

  // free + used + only indexed = all, in both pools.
  bool is_consistent() const { return device.is_consistent() && host.is_consistent() && index.is_consistent(); }

  PagePool device;
  PagePool host;
  PrefixIndex index;  // of pages of `device`
  int64_t num_evicted = 0;
};

}  // namespace gimbal
