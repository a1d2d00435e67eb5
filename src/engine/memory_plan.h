// memory_plan: how many KV tokens fit, and whether the model fits at all, before a weight is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/machine_limits.h"
#include "base/result.h"
#include "model_config/model_config.h"
#include "settings/settings.h"

namespace gimbal {

struct MemoryPlan {
  int64_t context_length = 0;
  int64_t max_running = 0;
  int64_t tokens_per_step = 0;
  int64_t num_pages = 0;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t workspace_bytes = 0;
  std::vector<std::string> notes;  // limits that were derived
};

// Weights + workspace + KV must stay under mem_fraction_static of the memory this process may use. The KV pool takes
// what the largest number of running requests can use, or less when memory is short, but never less than one whole
// context. A context that was asked for is never shortened; one that comes from the model is, with a note, when it does
// not fit.
Result<MemoryPlan> plan_memory(const Settings& settings, const ModelConfig& config, uint64_t weight_bytes,
                               const MachineLimits& machine);

}  // namespace gimbal
