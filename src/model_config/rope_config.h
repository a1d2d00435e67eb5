// Reads the rotary embedding of a config: `rope_scaling` or `rope_parameters`, `type` or `rope_type`, theta inside or
// outside.
#pragma once

#include <string>
#include <vector>

#include "model_config/config_reader.h"
#include "model_config/model_config.h"

namespace gimbal {

// Violations go to the reader's list, derived defaults to `notes`. An unknown kind or key is a violation, never
// dropped.
RopeConfig read_rope_config(ConfigReader& reader, Violations& violations, std::vector<std::string>& notes);

}  // namespace gimbal
