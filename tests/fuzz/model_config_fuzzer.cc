// Arbitrary bytes as config.json: refused cleanly, or a config whose plan adds up.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "parallel/weight_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = gimbal::parse_model_config({reinterpret_cast<const char*>(data), size});
  if (!config.has_value()) {
    if (config.error().message.empty()) std::abort();
    return 0;
  }
  if (!(gimbal::attention_softmax_scale(*config) > 0)) std::abort();
  if (config->qk_rope_head_dim <= 512) {
    for (const double frequency : gimbal::rope_frequencies(*config)) {
      if (!std::isfinite(frequency)) std::abort();
    }
  }
  if (config->num_layers * (config->num_experts + 1) > 2000) return 0;  // keep one run short
  uint64_t sum = 0;
  for (const gimbal::PlannedWeight& weight : gimbal::make_weight_plan(*config).weights) {
    for (const gimbal::PlannedTensor& tensor : weight.tensors) {
      if (tensor.bytes() == 0) std::abort();
      if (__builtin_add_overflow(sum, tensor.bytes(), &sum)) std::abort();
    }
  }
  return 0;
}
