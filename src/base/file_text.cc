#include "base/file_text.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include "base/byte_size.h"

namespace gimbal {

Result<std::string> read_file_text(const std::filesystem::path& path, uint64_t limit_bytes) {
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  if (code || !std::filesystem::exists(status)) {
    return fail(Error::invalid(fmt::format("{} does not exist.", path.string())));
  }
  if (!std::filesystem::is_regular_file(status)) {
    return fail(Error::invalid(fmt::format("{} is not a regular file.", path.string())));
  }
  const uint64_t size = std::filesystem::file_size(path, code);
  if (code) return fail(Error::invalid(fmt::format("{} cannot be read: {}.", path.string(), code.message())));
  if (size > limit_bytes) {
    return fail(Error::invalid(fmt::format("{} has {}, more than the limit of {} for this kind of file.", path.string(),
                                           format_bytes(size), format_bytes(limit_bytes))));
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream)
    return fail(Error::invalid(fmt::format("{} cannot be opened: {}.", path.string(), std::strerror(errno))));
  std::string text(size, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(size));
  if (static_cast<uint64_t>(stream.gcount()) != size) {
    return fail(
        Error::failed(fmt::format("{} could be read only up to byte {} of {}.", path.string(), stream.gcount(), size)));
  }
  return text;
}

}  // namespace gimbal
