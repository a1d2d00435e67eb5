// Which keys of config.json give a planned tensor its shape, for messages.
#pragma once

#include <string>

#include "model_config/model_config.h"
#include "parallel/weight_plan.h"

namespace gimbal {

// "moe_intermediate_size 2048, hidden_size 7168, num_bits 4" for tensor `index` of `weight`.
std::string describe_shape_source(const PlannedWeight& weight, size_t index, const ModelConfig& config);

}  // namespace gimbal
