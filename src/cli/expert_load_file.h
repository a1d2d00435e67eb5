// expert_load_file: how often each expert was chosen, written for --init-expert-location.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/rank_messages.h"

namespace gimbal {

// Sums the ranks' counts and writes {"logical_count": [[per expert] per layer]} to `path`.
Status write_expert_load(const std::string& path, const std::vector<RankReport>& reports);

}  // namespace gimbal
