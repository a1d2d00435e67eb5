#include "kv_cache/kv_storage.h"

#include <cstring>

#include "base/check.h"

namespace gimbal {

uint64_t kv_bytes_per_token(int64_t num_layers, int64_t width) {
  return static_cast<uint64_t>(num_layers) * static_cast<uint64_t>(width) * sizeof(float);
}

Result<KvStorage> KvStorage::allocate(const KvShape& shape) {
  const uint64_t bytes =
      kv_bytes_per_token(shape.num_layers, shape.width) * static_cast<uint64_t>(shape.num_pages * shape.page_size);
  GIMBAL_ASSIGN_OR_RETURN(HostBuffer buffer, HostBuffer::allocate(bytes));
  const uint64_t host_bytes =
      kv_bytes_per_token(shape.num_layers, shape.width) * static_cast<uint64_t>(shape.num_host_pages * shape.page_size);
  GIMBAL_ASSIGN_OR_RETURN(HostBuffer host, HostBuffer::allocate(host_bytes));
  return KvStorage(shape, std::move(buffer), std::move(host));
}

size_t KvStorage::page_bytes() const { return static_cast<size_t>(shape_.page_size * shape_.width) * sizeof(float); }

float* KvStorage::host_page(int64_t layer, PageId page) {
  GIMBAL_CHECK(page >= 0 && page < shape_.num_host_pages);
  return reinterpret_cast<float*>(host_.data()) +
         (layer * shape_.num_host_pages + page) * shape_.page_size * shape_.width;
}

void KvStorage::copy_page(PageId from, PageId to) {
  for (int64_t layer = 0; layer < shape_.num_layers; ++layer)
    std::memcpy(page(layer, to), page(layer, from), page_bytes());
}

void KvStorage::page_to_host(PageId from, PageId to_host) {
  for (int64_t layer = 0; layer < shape_.num_layers; ++layer)
    std::memcpy(host_page(layer, to_host), page(layer, from), page_bytes());
}

void KvStorage::page_to_device(PageId from_host, PageId to) {
  for (int64_t layer = 0; layer < shape_.num_layers; ++layer)
    std::memcpy(page(layer, to), host_page(layer, from_host), page_bytes());
}

int64_t KvStorage::offset_of(int64_t layer, PageId page) const {
  GIMBAL_CHECK(layer >= 0 && layer < shape_.num_layers);
  GIMBAL_CHECK(page >= 0 && page < shape_.num_pages);
  return (layer * shape_.num_pages + page) * shape_.page_size * shape_.width;
}

float* KvStorage::page(int64_t layer, PageId page) {
  return reinterpret_cast<float*>(buffer_.data()) + offset_of(layer, page);
}

const float* KvStorage::page(int64_t layer, PageId page) const {
  return reinterpret_cast<const float*>(buffer_.data()) + offset_of(layer, page);
}

float* KvStorage::token(int64_t layer, std::span<const PageId> pages, int64_t position) {
  const auto index = static_cast<size_t>(position / shape_.page_size);
  GIMBAL_CHECK_LT(index, pages.size());
  return page(layer, pages[index]) + (position % shape_.page_size) * shape_.width;
}

}  // namespace gimbal
