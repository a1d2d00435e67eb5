// How commands end: one paragraph on stderr and the exit code.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gimbal {

// Prints the error of a failed command ("gimbal score: ...") and returns its exit code; 0 for success.
int report_status(std::string_view command, const Status& status);

// One line per note on stderr: "note: ...".
void print_notes(const std::vector<std::string>& notes);

}  // namespace gimbal
