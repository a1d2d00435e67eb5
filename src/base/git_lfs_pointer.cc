#include "base/git_lfs_pointer.h"

#include <charconv>

#include <fmt/format.h>

#include "base/byte_size.h"

namespace gimbal {

std::optional<GitLfsPointer> parse_git_lfs_pointer(std::string_view head) {
  if (!head.starts_with("version https://git-lfs")) return std::nullopt;
  GitLfsPointer pointer;
  constexpr std::string_view kSizeKey = "\nsize ";
  if (const size_t at = head.find(kSizeKey); at != std::string_view::npos) {
    const char* first = head.data() + at + kSizeKey.size();
    std::from_chars(first, head.data() + head.size(), pointer.promised_bytes);
  }
  return pointer;
}

std::string describe_git_lfs_pointer(std::string_view path, uint64_t file_bytes, const GitLfsPointer& pointer) {
  const std::string promised =
      pointer.promised_bytes == 0 ? "of unknown size" : fmt::format("{} bytes", pointer.promised_bytes);
  return fmt::format(
      "{} is a Git LFS pointer ({} bytes), not the content itself ({}): it was not downloaded. "
      "Fetch it with `git lfs pull` in that folder or download the file again.",
      path, file_bytes, promised);
}

}  // namespace gimbal
