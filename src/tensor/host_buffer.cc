#include "tensor/host_buffer.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

#include "base/byte_size.h"

namespace gimbal {

Result<HostBuffer> HostBuffer::allocate(uint64_t bytes) {
  if (bytes == 0) return HostBuffer();
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return fail(Error::failed(
        fmt::format("{} of memory could not be reserved: {}.", format_bytes(bytes), std::strerror(errno))));
  }
  return HostBuffer(static_cast<std::byte*>(data), bytes);
}

HostBuffer::HostBuffer(HostBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

HostBuffer::~HostBuffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace gimbal
