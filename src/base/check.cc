#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace gimbal {

void check_failed(std::string_view condition, std::string_view detail, const char* file, int line) {
  fmt::print(stderr, "check failed: {}{}{}{} at {}:{}\n", condition, detail.empty() ? "" : " (", detail,
             detail.empty() ? "" : ")", file, line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace gimbal
