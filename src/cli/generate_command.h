// `gimbal generate`: continues prompts without a server.
#pragma once

#include "settings/settings.h"

namespace gimbal {

// Continues --prompt or every line of --input. Returns the exit code.
int run_generate_command(const Settings& settings);

}  // namespace gimbal
