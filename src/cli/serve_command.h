// `gimbal serve`: the model behind HTTP until a signal comes.
#pragma once

#include "settings/settings.h"

namespace gimbal {

// Returns the exit code: 0 after a signal, 1 or 2 when it could not start.
int run_serve_command(const Settings& settings);

}  // namespace gimbal
