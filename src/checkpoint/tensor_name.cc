#include "checkpoint/tensor_name.h"

#include <charconv>

namespace gimbal {

std::string canonical_tensor_name(std::string_view stored) {
  constexpr std::string_view kPrefix = "language_model.";
  if (!stored.starts_with(kPrefix)) return std::string(stored);
  stored.remove_prefix(kPrefix.size());
  if (stored.starts_with("model.") || stored.starts_with("lm_head.")) return std::string(stored);
  return "model." + std::string(stored);
}

SkipReason skip_reason(std::string_view name, const ModelConfig& config) {
  for (const std::string_view prefix : {"vision_tower.", "mm_projector.", "multi_modal_projector."}) {
    if (name.starts_with(prefix)) return SkipReason::kVision;
  }
  constexpr std::string_view kLayers = "model.layers.";
  if (name.starts_with(kLayers)) {
    int64_t layer = -1;
    const char* end = name.data() + name.size();
    const auto [rest, code] = std::from_chars(name.data() + kLayers.size(), end, layer);
    if (code == std::errc() && rest != end && *rest == '.' && layer >= config.num_layers &&
        layer < config.num_layers + config.num_nextn_predict_layers) {
      return SkipReason::kNextTokenPredict;
    }
  }
  return name.ends_with(".rotary_emb.inv_freq") ? SkipReason::kRotaryTable : SkipReason::kNone;
}

}  // namespace gimbal
