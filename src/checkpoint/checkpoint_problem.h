// CheckpointProblem: one group of faults of a model folder, and the text in which people read many of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace gimbal {

struct CheckpointProblem {
  std::string kind;  // stable word for programs: "missing", "shape", "type", "index", "file", "duplicate", "stray", ...
  uint64_t count = 1;   // tensors or files concerned
  std::string example;  // one of them, in full
  std::string message;  // one paragraph; may have several lines
};

// Names with their numbers gathered: "model.layers.{1-7}.mlp.experts.{0-383}.up_proj.weight (2688 tensors)". One line
// per group, in the order in which they are first met; behind `max_lines` groups one line counts the rest. When a group
// is not the full product of its ranges the line says so.
std::vector<std::string> collapse_names(std::span<const std::string> names, size_t max_lines);

// One error for all problems of a folder, at most about 25 lines.
Error describe_problems(std::string_view model_dir, std::span<const CheckpointProblem> problems);

}  // namespace gimbal
