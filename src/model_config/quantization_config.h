// Reads `quantization_config`: compressed-tensors pack-quantized integers, or FP8 in blocks.
#pragma once

#include <string>
#include <vector>

#include "model_config/config_reader.h"
#include "model_config/model_config.h"

namespace gimbal {

// `value` is the object at `path` of config.json. Everything that would change how weights are read and is not known is
// a violation.
QuantizationConfig read_quantization_config(const boost::json::value& value, const std::string& path,
                                            Violations& violations);

}  // namespace gimbal
