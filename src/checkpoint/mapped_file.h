// MappedFile: a read-only memory map of one file.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/result.h"

namespace gimbal {

// Owns the mapping; movable. The pages are read on first touch and may be dropped by the kernel at any time.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const std::byte* data, size_t size) : data_(data), size_(size) {}
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace gimbal
