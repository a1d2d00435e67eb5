// The bundled model with the defaults of the command line, for tests of the engine.
#pragma once

#include <string>

#include "settings/settings_table.h"

namespace gimbal {

inline Settings settings_for_test() {
  Settings settings = default_settings();
  settings.model_path = std::string(GIMBAL_SOURCE_DIR) + "/models/kimi-k2-mini";
  settings.num_threads = 2;
  return settings;
}

}  // namespace gimbal
