// layout_flags: the layout that the settings ask for: by name, or by SGLang's flags read as SGLang reads them.
//
//   attention_dp = dp (with DP attention), attention_tp = tp / dp, expert_parallel = ep, expert_tp = tp / ep
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "parallel/layout_check.h"
#include "parallel/parallel_layout.h"
#include "settings/settings.h"

namespace gimbal {

struct LayoutChoice {
  ParallelLayout layout;
  bool is_exchange_given = false;           // by name or flag; else it may follow from the kind of ranks
  std::vector<LayoutViolation> violations;  // of sizes that do not divide; the layout holds the nearest that does
  std::vector<std::string> notes;           // what was mapped or has no effect
};

// Errors: a name that cannot be read, flags that contradict each other.
Result<LayoutChoice> choose_layout(const Settings& settings);

}  // namespace gimbal
