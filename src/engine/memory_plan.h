// memory_plan: how many KV tokens fit, and whether the model fits at all, before a weight is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/machine_limits.h"
#include "base/result.h"
#include "model_config/model_config.h"
#include "parallel/parallel_layout.h"
#include "settings/settings.h"

namespace gimbal {

struct MemoryPlan {
  int64_t context_length = 0;
  int64_t max_running = 0;         // per DP group
  int64_t tokens_per_step = 0;     // per DP group
  int64_t low_latency_tokens = 0;  // slots per rank of the low-latency exchange; 0: no such steps
  int64_t num_pages = 0;           // per DP group; each rank of the group holds them for its layers
  int64_t num_host_pages = 0;      // per DP group, for pages of paused sequences
  uint64_t weight_bytes = 0;       // of this process, as the rest
  uint64_t kv_bytes = 0;
  uint64_t workspace_bytes = 0;    // scratch memory and exchange windows
  std::vector<std::string> notes;  // limits that were derived
};

// What has to fit where.
struct MemoryProblem {
  const Settings* settings = nullptr;  // not owned, as the rest
  const ModelConfig* config = nullptr;
  const ParallelLayout* layout = nullptr;
  uint64_t weight_bytes = 0;             // of this process
  int64_t num_ranks = 1;                 // in this process: all as threads, or one
  int64_t num_processes_on_machine = 1;  // that share the memory
  int64_t num_layers_of_rank = 0;        // with one rank per process: of the largest stage
  MachineLimits machine;
};

// Weights + workspace + KV must stay under mem_fraction_static of the memory this process may use. The KV pool takes
// what the largest number of running requests can use, or less when memory is short, but never less than one whole
// context. A context that was asked for is never shortened; one that comes from the model is, with a note, when it does
// not fit.
Result<MemoryPlan> plan_memory(const MemoryProblem& problem);

// Most tokens a rank can bring to the exchange of a step: with prompt tokens, or of pure decode.
struct StepTokens {
  int64_t with_prefill = 0;
  int64_t decode_only = 0;
};
StepTokens most_tokens_per_rank(const ParallelLayout& layout, const MemoryPlan& memory);

}  // namespace gimbal
