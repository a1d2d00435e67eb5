#include "kv_cache/kv_storage.h"

#include "base/check.h"

namespace gimbal {

uint64_t kv_bytes_per_token(int64_t num_layers, int64_t width) {
  return static_cast<uint64_t>(num_layers) * static_cast<uint64_t>(width) * sizeof(float);
}

Result<KvStorage> KvStorage::allocate(const KvShape& shape) {
  const uint64_t bytes =
      kv_bytes_per_token(shape.num_layers, shape.width) * static_cast<uint64_t>(shape.num_pages * shape.page_size);
  GIMBAL_ASSIGN_OR_RETURN(HostBuffer buffer, HostBuffer::allocate(bytes));
  return KvStorage(shape, std::move(buffer));
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
