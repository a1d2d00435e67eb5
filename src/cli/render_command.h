// `gimbal render`: chat requests to prompt text and ids.
#pragma once

#include "settings/settings.h"

namespace gimbal {

// Reads chat requests from --input and prints one line {"rendered", "ids"} for each. Returns the exit code.
int run_render_command(const Settings& settings);

}  // namespace gimbal
