#include "comm/comm_state.h"

#include <fmt/format.h>

namespace gimbal {

std::string_view name_of(CommVerb verb) {
  static constexpr std::array<std::string_view, kNumCommVerbs> kNames = {
      "computation", "barrier", "all_reduce", "all_gather", "reduce_scatter", "all_to_all",
      "send",        "receive", "share",      "put",        "wait_signal"};
  return kNames[static_cast<size_t>(verb)];
}

std::string describe_position(const CommState& state) {
  const int64_t layer = state.layer.load(std::memory_order_relaxed);
  return fmt::format("{} of {}, step {}", name_of(state.verb.load(std::memory_order_relaxed)),
                     layer < 0 ? "no layer" : fmt::format("layer {}", layer),
                     state.step.load(std::memory_order_relaxed));
}

}  // namespace gimbal
