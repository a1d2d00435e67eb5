// Git LFS leaves a small text file in place of content that was not fetched. Readers that meet one say so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gimbal {

struct GitLfsPointer {
  uint64_t promised_bytes = 0;  // size of the real content; 0 when the pointer does not say
};

// Recognizes the pointer text by its first line ("version https://git-lfs...") from the first bytes of a file.
std::optional<GitLfsPointer> parse_git_lfs_pointer(std::string_view head);

// "PATH is a Git LFS pointer of N bytes: its content (M) was not downloaded; run `git lfs pull` there, ..."
std::string describe_git_lfs_pointer(std::string_view path, uint64_t file_bytes, const GitLfsPointer& pointer);

}  // namespace gimbal
