// The only place that reads environment variables.
#pragma once

#include <optional>
#include <string>

namespace gimbal {

// The value of a variable that is set and not empty.
std::optional<std::string> read_environment(const char* name);

}  // namespace gimbal
