#include "cli/command_error.h"

#include <cstdio>

#include <fmt/format.h>

namespace gimbal {

int report_status(std::string_view command, const Status& status) {
  if (status.has_value()) return 0;
  fmt::print(stderr, "gimbal {}: {}\n", command, status.error().message);
  return exit_code(status.error().kind);
}

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) fmt::print(stderr, "note: {}\n", note);
}

}  // namespace gimbal
