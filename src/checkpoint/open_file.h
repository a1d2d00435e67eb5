// OpenFile: a regular file opened for positioned reading.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "base/result.h"

namespace gimbal {

// Owns the descriptor; movable. Never blocks on a pipe or device: anything but a regular file is refused.
class OpenFile {
 public:
  static Result<OpenFile> open(const std::filesystem::path& path);
  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&& other) noexcept;
  ~OpenFile();

  int descriptor() const { return descriptor_; }
  uint64_t size() const { return size_; }  // when it was opened

  // Fills `bytes` from `offset`; an error when the file ends before.
  Status read_at(uint64_t offset, std::span<char> bytes) const;

 private:
  OpenFile(int descriptor, uint64_t size, std::string path)
      : descriptor_(descriptor), size_(size), path_(std::move(path)) {}
  int descriptor_ = -1;
  uint64_t size_ = 0;
  std::string path_;
};

}  // namespace gimbal
