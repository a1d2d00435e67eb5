// `gimbal check`: compares the headers of a checkpoint with its config.json, without reading weights.
#pragma once

#include "settings/settings.h"

namespace gimbal {

// Prints one report (JSON with --json) to stdout and returns the exit code: 0 when the checkpoint is sound, else 2.
int run_check_command(const Settings& settings);

}  // namespace gimbal
