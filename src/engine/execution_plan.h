// ExecutionPlan: everything that is decided before a weight is read: layout, placement, backends, memory, threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention/mla_attention_backend.h"
#include "base/machine_limits.h"
#include "base/result.h"
#include "engine/memory_plan.h"
#include "model_config/model_config.h"
#include "moe/exchange/copy_choice.h"
#include "moe/expert_runner/expert_runner.h"
#include "ops/op_context.h"
#include "parallel/expert_placement.h"
#include "parallel/parallel_layout.h"
#include "parallel/weight_plan.h"
#include "scheduler/scheduler.h"
#include "settings/settings.h"

namespace gimbal {

// The processes that take part: 0 when ranks are threads of this one.
struct RankProcesses {
  int64_t count = 0;
  int64_t count_on_machine = 0;  // that share this machine's memory
};

struct ExecutionPlan {
  ParallelLayout layout;
  std::shared_ptr<const ExpertPlacement> placement;
  CopyChoiceKind copy_choice = CopyChoiceKind::kDynamic;
  GroupChoice group_choice = GroupChoice::kTotalTokens;
  int64_t num_in_flight = 1;  // plans
  BackendRecord<OpBackend> ops;
  BackendRecord<AttentionBackend> attention;
  BackendRecord<ExpertRunnerKind> experts;
  int num_threads = 1;           // of this process
  int num_threads_per_rank = 1;  // at least one each
  bool is_deterministic = false;
  double latent_norm_eps = 0;
  int64_t page_size = 0;
  MemoryPlan memory;
  std::vector<std::string> notes;
};

// Validates the layout against model and processes; refusals list every violated rule. `weights` is the announced or
// the stored weight plan. Reads nothing but the placement file.
Result<ExecutionPlan> make_execution_plan(const Settings& settings, const ModelConfig& config,
                                          const WeightPlan& weights, const RankProcesses& processes);

// The layout alone, checked against the model: what can be refused before any file of weights is opened.
Status check_requested_layout(const Settings& settings, const ModelConfig& config, const RankProcesses& processes);

// Whether a step runs in the low-latency mode; the same on every rank.
bool is_low_latency_step(const StepPlan& step, const ParallelLayout& layout, int64_t low_latency_tokens);

}  // namespace gimbal
