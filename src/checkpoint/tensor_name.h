// The spellings under which publishers store the same tensor, and which tensors text serving leaves out.
#pragma once

#include <string>
#include <string_view>

#include "model_config/model_config.h"

namespace gimbal {

// "language_model.model.X", "language_model.X" and "X" become the canonical "model.X" (or "lm_head.X"); other names
// stay.
std::string canonical_tensor_name(std::string_view stored);

// Why a tensor that is in no weight plan may be left out.
enum class SkipReason {
  kNone,              // it may not: it could change what the model computes
  kVision,            // vision tower and projector
  kNextTokenPredict,  // multi-token-prediction layers behind the last decoder layer, when config.json announces them
  kRotaryTable,       // rotary_emb.inv_freq, which is derived from config.json
};

// `name` is canonical.
SkipReason skip_reason(std::string_view name, const ModelConfig& config);

}  // namespace gimbal
