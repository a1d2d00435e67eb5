// `gimbal score`: negative log-likelihoods and top logits of given texts.
#pragma once

#include "settings/settings.h"

namespace gimbal {

// Reads --input, writes --output. Returns the exit code.
int run_score_command(const Settings& settings);

}  // namespace gimbal
