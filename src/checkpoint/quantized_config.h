// config.json for another kind of quantization.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace gimbal {

// The config text with its quantization_config replaced to fit `quantization`: "int4" (compressed-tensors, group size
// kept when the config already is of that kind, else 32; attention, shared experts, dense layers and head unquantized),
// "fp8" (128 x 128 blocks) or "bf16" (none). Nested text_config is respected. Everything else is kept as it is.
Result<std::string> requantize_config(std::string_view config_text, std::string_view quantization);

}  // namespace gimbal
