// Compares the tensors found in a checkpoint with the weight plan that config.json asks for.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint_survey.h"
#include "model_config/model_config.h"

namespace gimbal {

// Sets survey.plan with the formats stored, and appends problems (missing, type, shape, quantization, stray) and notes.
// `is_excused(name)` tells of canonical names whose shard is missing or unreadable: they are not reported as missing
// again.
void compare_with_plan(const ModelConfig& config, const std::function<bool(std::string_view name)>& is_excused,
                       CheckpointSurvey& survey);

}  // namespace gimbal
