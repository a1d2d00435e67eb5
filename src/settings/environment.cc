#include "settings/environment.h"

#include <cstdlib>

namespace gimbal {

std::optional<std::string> read_environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

}  // namespace gimbal
