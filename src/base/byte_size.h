// Sizes in bytes as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace gimbal {

// "0 B", "512 B", "23.6 MiB", "554.3 GiB": binary units, one decimal above bytes.
std::string format_bytes(uint64_t bytes);

}  // namespace gimbal
