// ModulePatterns: the `ignore` list of a quantization config: exact module names and "re:" regular expressions.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gimbal {

// Immutable; cheap to copy; may be used from any thread. Expressions match from the start of the name, as Python's
// re.match does, with a step limit, so that no expression can hang the program.
class ModulePatterns {
 public:
  ModulePatterns() = default;
  // Refuses expressions that are not valid, too long, or too slow on names of this length; names the entry.
  static Result<ModulePatterns> compile(const std::vector<std::string>& entries);

  bool matches(std::string_view module) const;

 private:
  struct Pattern;
  std::vector<std::shared_ptr<const Pattern>> patterns_;
};

}  // namespace gimbal
