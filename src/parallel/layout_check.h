// layout_check: whether a model can be computed in a layout, known from config.json alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model_config/model_config.h"
#include "parallel/parallel_layout.h"

namespace gimbal {

// One violated rule, for a person: "attention heads: required ..., offered ..., missing ...".
struct LayoutViolation {
  std::string rule;
  std::string required;
  std::string offered;
  std::string missing;
};

// What a layout must fit.
struct LayoutProblem {
  const ModelConfig* config = nullptr;  // not owned
  int64_t num_redundant_experts = 0;    // extra physical copies, --ep-num-redundant-experts
  int64_t num_processes = 0;            // of mpirun, one rank each; 0: ranks are threads, any number
};

// Every violated rule; empty when the layout works. Sources: the equations of parallel_layout.h and what slices need:
// whole heads per attention rank, whole experts per expert-parallel rank, equal widths per tensor-parallel rank.
std::vector<LayoutViolation> check_layout(const ParallelLayout& layout, const LayoutProblem& problem);

// All layouts of `world_size` ranks that work, with exchange none and with the one of the kind of ranks (direct or
// mpi), default dense split; in a fixed order.
std::vector<ParallelLayout> valid_layouts(const LayoutProblem& problem, int64_t world_size);

// At most `count` working layouts that are most like `layout`, the nearest first.
std::vector<ParallelLayout> nearest_layouts(const ParallelLayout& layout, const LayoutProblem& problem, size_t count);

// Ok, or one error with all violations (those found before in `known`, too) and the nearest layouts that work.
Status require_valid_layout(const ParallelLayout& layout, const LayoutProblem& problem,
                            std::vector<LayoutViolation> known = {});

// "rule: required ..., offered ..., missing ..." lines for an error message.
std::string describe_violations(const std::vector<LayoutViolation>& violations);

}  // namespace gimbal
