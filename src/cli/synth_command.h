// `gimbal synth`: writes a checkpoint with random weights for any config.json.
#pragma once

#include "settings/settings.h"

namespace gimbal {

// Returns the exit code.
int run_synth_command(const Settings& settings);

}  // namespace gimbal
