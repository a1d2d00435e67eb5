// KvStorage: the memory of the KV pages of one rank.
//
// MLA caches `width` values per token and layer: the latent after its norm, then the rope key after rotation. The
// layout is the same in every parallel layout, so a change of layout moves pages and recomputes nothing.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "kv_cache/page_pool.h"
#include "tensor/host_buffer.h"

namespace gimbal {

struct KvShape {
  int64_t num_layers = 0;
  int64_t num_pages = 0;
  int64_t page_size = 0;       // tokens
  int64_t width = 0;           // values per token and layer
  int64_t num_host_pages = 0;  // places for pages of paused sequences
};

// Owns the pages; physical memory is taken when a page is first written.
class KvStorage {
 public:
  static Result<KvStorage> allocate(const KvShape& shape);

  const KvShape& shape() const { return shape_; }
  uint64_t bytes() const { return buffer_.size(); }  // without the host's places

  // [page_size][width], the tokens of one page in order.
  float* page(int64_t layer, PageId page);
  const float* page(int64_t layer, PageId page) const;
  // [width], the token at `position` of a sequence with these pages.
  float* token(int64_t layer, std::span<const PageId> pages, int64_t position);

  // Work on whole pages, all layers.
  void copy_page(PageId from, PageId to);
  void page_to_host(PageId from, PageId to_host);
  void page_to_device(PageId from_host, PageId to);

 private:
  KvStorage(const KvShape& shape, HostBuffer buffer, HostBuffer host)
      : shape_(shape), buffer_(std::move(buffer)), host_(std::move(host)) {}
  int64_t offset_of(int64_t layer, PageId page) const;
  float* host_page(int64_t layer, PageId page);
  size_t page_bytes() const;
  KvShape shape_;
  HostBuffer buffer_;  // [num_layers][num_pages][page_size][width] floats
  HostBuffer host_;    // [num_layers][num_host_pages][page_size][width] floats
};

// Bytes that one cached token takes over all layers.
uint64_t kv_bytes_per_token(int64_t num_layers, int64_t width);

}  // namespace gimbal
