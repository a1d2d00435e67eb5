// expert_load_file: how often each expert was chosen, written for --init-expert-location.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/rank_messages.h"

namespace gimbal {

// Refuses a path that cannot be written, before anything is computed. Empty: nothing to check.
Status check_expert_load_path(const std::string& path);

// Sums the ranks' counts and writes {"logical_count": [[per expert] per layer]} to `path`.
Status write_expert_load(const std::string& path, const std::vector<RankReport>& reports);

}  // namespace gimbal
