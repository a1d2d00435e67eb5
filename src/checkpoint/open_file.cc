#include "checkpoint/open_file.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gimbal {

Result<OpenFile> OpenFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: a named pipe in place of a shard must be refused, not waited for.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    return fail(Error::invalid(fmt::format("{} cannot be opened: {}.", path.string(), std::strerror(errno))));
  }
  OpenFile file(descriptor, 0, path.string());
  struct stat status {};
  if (fstat(descriptor, &status) != 0) {
    return fail(Error::invalid(fmt::format("{} cannot be inspected: {}.", path.string(), std::strerror(errno))));
  }
  if (!S_ISREG(status.st_mode)) {
    return fail(Error::invalid(fmt::format("{} is not a regular file.", path.string())));
  }
  file.size_ = static_cast<uint64_t>(status.st_size);
  return file;
}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_), path_(std::move(other.path_)) {}

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

OpenFile::~OpenFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

Status OpenFile::read_at(uint64_t offset, std::span<char> bytes) const {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count =
        pread(descriptor_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return fail(Error::failed(fmt::format("{} cannot be read: {}.", path_, std::strerror(errno))));
    }
    if (count == 0) {
      return fail(Error::failed(
          fmt::format("{} ended at byte {} while byte {} was wanted.", path_, offset + done, offset + bytes.size())));
    }
    done += static_cast<size_t>(count);
  }
  return {};
}

}  // namespace gimbal
