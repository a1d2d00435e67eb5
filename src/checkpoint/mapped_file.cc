#include "checkpoint/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "checkpoint/open_file.h"

namespace gimbal {

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  GIMBAL_ASSIGN_OR_RETURN(const OpenFile file, OpenFile::open(path));
  if (file.size() == 0) return MappedFile(nullptr, 0);
  void* data = mmap(nullptr, file.size(), PROT_READ, MAP_SHARED, file.descriptor(), 0);
  if (data == MAP_FAILED) {
    return fail(Error::failed(fmt::format("{} cannot be mapped: {}.", path.string(), std::strerror(errno))));
  }
  return MappedFile(static_cast<const std::byte*>(data), file.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace gimbal
