#include "engine/execution_plan.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "base/byte_size.h"
#include "model/rank_context.h"
#include "parallel/layout_check.h"
#include "parallel/layout_flags.h"
#include "parallel/rank_weight_plan.h"
#include "parallel/stage_partition.h"
#include "settings/environment.h"

namespace gimbal {
namespace {

constexpr const char* kSlotsVariable = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK";

// The layout that is asked for, checked against the model and the processes.
Result<LayoutChoice> resolve_layout(const Settings& settings, const ModelConfig& config,
                                    const RankProcesses& processes) {
  GIMBAL_ASSIGN_OR_RETURN(LayoutChoice choice, choose_layout(settings));
  ParallelLayout& layout = choice.layout;
  if (processes.count > 0 && layout.exchange == ExchangeKind::kDirect && !choice.is_exchange_given) {
    layout.exchange = ExchangeKind::kMpi;
    choice.notes.emplace_back("exchange: mpi, because processes share no memory (among threads it is direct)");
  }
  GIMBAL_RETURN_IF_ERROR(require_valid_layout(
      layout,
      {.config = &config, .num_redundant_experts = settings.num_redundant_experts, .num_processes = processes.count},
      choice.violations));
  return choice;
}

Status choose_backends(const Settings& settings, ExecutionPlan& plan) {
  GIMBAL_ASSIGN_OR_RETURN(plan.ops, choose_backend("--op-backend", settings.op_backend, op_backends()));
  GIMBAL_ASSIGN_OR_RETURN(plan.attention,
                          choose_backend("--attention-backend", settings.attention_backend, attention_backends()));
  GIMBAL_ASSIGN_OR_RETURN(plan.experts,
                          choose_backend("--moe-runner-backend", settings.moe_runner_backend, expert_runners()));
  return {};
}

Status choose_placement(const Settings& settings, const ModelConfig& config, ExecutionPlan& plan) {
  const ExpertPlacementShape shape = placement_shape(config, plan.layout, settings.num_redundant_experts);
  if (settings.init_expert_location == "trivial") {
    plan.placement = std::make_shared<const ExpertPlacement>(ExpertPlacement::trivial(shape));
  } else {
    GIMBAL_ASSIGN_OR_RETURN(ExpertPlacement placement, read_expert_placement(settings.init_expert_location, shape));
    plan.placement = std::make_shared<const ExpertPlacement>(std::move(placement));
    plan.notes.push_back(fmt::format("expert placement from {}", settings.init_expert_location));
  }
  // Without an exchange all ranks must choose the same copy for a row they all hold.
  const bool is_exchanged = plan.layout.exchange != ExchangeKind::kNone;
  if (settings.ep_dispatch_algorithm == "static" && !is_exchanged && settings.num_redundant_experts > 0) {
    return fail(Error::invalid(
        "--ep-dispatch-algorithm static chooses a copy per rank. Required: an exchange (--moe-a2a-backend direct or "
        "mpi). Offered: exchange none, where all ranks must choose the same copy. Use dynamic or auto.",
        "--ep-dispatch-algorithm"));
  }
  const bool is_static = settings.ep_dispatch_algorithm != "dynamic" && is_exchanged;
  plan.copy_choice = is_static ? CopyChoiceKind::kStatic : CopyChoiceKind::kDynamic;
  return {};
}

GroupChoice group_choice_of(const Settings& settings) {
  if (settings.load_balance_method == "round_robin") return GroupChoice::kRoundRobin;
  if (settings.load_balance_method == "total_requests") return GroupChoice::kTotalRequests;
  return GroupChoice::kTotalTokens;
}

// SGLang sets the slots through the environment; a unit file that does so must not start with other ones.
Result<Settings> with_slots_of_environment(const Settings& settings, std::vector<std::string>& notes) {
  Settings result = settings;
  const std::optional<std::string> text = read_environment(kSlotsVariable);
  if (!text || settings.low_latency_slots >= 0) return result;
  int64_t slots = 0;
  const auto [end, code] = std::from_chars(text->data(), text->data() + text->size(), slots);
  if (code != std::errc() || end != text->data() + text->size() || slots < 1 || slots > 1000000) {
    return fail(Error::invalid(fmt::format("{} is {}; allowed: an integer from 1 to 1000000.", kSlotsVariable, *text),
                               "--low-latency-slots"));
  }
  notes.push_back(fmt::format("{}={} is read as --low-latency-slots {}", kSlotsVariable, slots, slots));
  result.low_latency_slots = slots;
  return result;
}

// Bytes of weights in this process. Threads share the mapped files; slices that cut columns are copies. A process of
// its own counts what its rank holds.
uint64_t weight_bytes_of_process(const ExecutionPlan& plan, const ModelConfig& config, const WeightPlan& weights,
                                 bool are_threads) {
  if (plan.layout.is_single()) return weights.total_bytes;
  uint64_t largest = 0;
  uint64_t copies = 0;
  for (int64_t rank = 0; rank < plan.layout.world_size(); ++rank) {
    const RankWeightPlan held = make_rank_weight_plan(
        {.plan = &weights, .config = &config, .layout = &plan.layout, .placement = plan.placement.get()}, rank);
    largest = std::max(largest, held.total_bytes);
    for (const RankWeight& weight : held.weights) {
      const bool cuts_columns = weight.slice.column_end - weight.slice.column_begin < weight.weight->columns;
      if (cuts_columns) copies += weight.bytes;
    }
  }
  return are_threads ? weights.total_bytes + copies : largest;
}

Status choose_memory(const Settings& settings, const ModelConfig& config, const WeightPlan& weights,
                     const RankProcesses& processes, ExecutionPlan& plan) {
  GIMBAL_ASSIGN_OR_RETURN(const Settings effective, with_slots_of_environment(settings, plan.notes));
  const bool are_threads = processes.count == 0;
  const MachineLimits machine = read_machine_limits();
  int64_t most_layers = 0;
  for (const IndexRange layers : stage_layers(plan.layout, layer_costs(weights, config.num_layers)))
    most_layers = std::max(most_layers, layers.size());
  const int64_t sharing = std::max<int64_t>(processes.count_on_machine, 1);
  GIMBAL_ASSIGN_OR_RETURN(plan.memory,
                          plan_memory({.settings = &effective,
                                       .config = &config,
                                       .layout = &plan.layout,
                                       .weight_bytes = weight_bytes_of_process(plan, config, weights, are_threads),
                                       .num_ranks = are_threads ? plan.layout.world_size() : 1,
                                       .num_processes_on_machine = sharing,
                                       .num_layers_of_rank = most_layers,
                                       .machine = machine}));
  plan.notes.insert(plan.notes.end(), plan.memory.notes.begin(), plan.memory.notes.end());
  const auto cpus = static_cast<int>(std::max<int64_t>(machine.num_cpus / sharing, 1));
  plan.num_threads = settings.num_threads > 0 ? static_cast<int>(settings.num_threads) : cpus;
  const int64_t ranks_here = are_threads ? plan.layout.world_size() : 1;
  plan.num_threads_per_rank = static_cast<int>(std::max<int64_t>(plan.num_threads / ranks_here, 1));
  if (settings.num_threads <= 0)
    plan.notes.push_back(fmt::format("threads: {} (from {})", plan.num_threads, machine.cpus_from));
  if (ranks_here > plan.num_threads)
    plan.notes.push_back(fmt::format("{} ranks share {} processors", ranks_here, plan.num_threads));
  return {};
}

}  // namespace

Status check_requested_layout(const Settings& settings, const ModelConfig& config, const RankProcesses& processes) {
  GIMBAL_RETURN_IF_ERROR(resolve_layout(settings, config, processes));
  return {};
}

Result<ExecutionPlan> make_execution_plan(const Settings& settings, const ModelConfig& config,
                                          const WeightPlan& weights, const RankProcesses& processes) {
  GIMBAL_ASSIGN_OR_RETURN(LayoutChoice choice, resolve_layout(settings, config, processes));
  ExecutionPlan plan;
  plan.layout = std::move(choice.layout);
  plan.notes = std::move(choice.notes);
  plan.group_choice = group_choice_of(settings);
  plan.num_in_flight = plan.layout.num_stages + (plan.layout.num_stages > 1 ? settings.pp_async_batch_depth : 0);
  plan.is_deterministic = settings.deterministic;
  plan.latent_norm_eps = settings.latent_norm_eps > 0 ? settings.latent_norm_eps : config.rms_norm_eps;
  plan.page_size = settings.page_size;
  GIMBAL_RETURN_IF_ERROR(choose_backends(settings, plan));
  GIMBAL_RETURN_IF_ERROR(choose_placement(settings, config, plan));
  GIMBAL_RETURN_IF_ERROR(choose_memory(settings, config, weights, processes, plan));
  return plan;
}

bool is_low_latency_step(const StepPlan& step, const ParallelLayout& layout, int64_t low_latency_tokens) {
  if (layout.exchange == ExchangeKind::kNone || low_latency_tokens == 0) return false;
  if (layout.mode == ExchangeMode::kLowLatency) return true;
  if (layout.mode == ExchangeMode::kNormal || step.has_prefill()) return false;
  // Fewer slots than decode rows (--low-latency-slots) send the step the normal way; nothing is dropped.
  for (const int64_t rows : step.group_rows(layout.attention_dp)) {
    if (even_part(rows, layout.attention_tp, layout.attention_tp - 1).size() > low_latency_tokens) return false;
  }
  return true;
}

}  // namespace gimbal
