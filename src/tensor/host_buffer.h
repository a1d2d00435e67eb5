// HostBuffer: page-aligned zeroed memory that takes physical pages only when they are touched.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace gimbal {

// Owns an anonymous mapping; movable.
class HostBuffer {
 public:
  HostBuffer() = default;
  static Result<HostBuffer> allocate(uint64_t bytes);
  HostBuffer(HostBuffer&& other) noexcept;
  HostBuffer& operator=(HostBuffer&& other) noexcept;
  ~HostBuffer();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  HostBuffer(std::byte* data, uint64_t size) : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace gimbal
