// Whole small files as text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace gimbal {

// Reads a regular file of at most `limit_bytes`. Missing, unreadable, not a regular file or larger: an error that names
// the path.
Result<std::string> read_file_text(const std::filesystem::path& path, uint64_t limit_bytes = uint64_t{256} << 20);

}  // namespace gimbal
