#include "engine/memory_plan.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "base/byte_size.h"
#include "kv_cache/kv_storage.h"
#include "model/deepseek_v3/decoder.h"
#include "model/rank_context.h"

namespace gimbal {
namespace {

constexpr int64_t kDefaultMaxRunning = 64;
constexpr int64_t kLeastContext = 512;  // a derived context is not made shorter than this

uint64_t budget_of(const MemoryProblem& problem) {
  return static_cast<uint64_t>(problem.settings->mem_fraction_static *
                               static_cast<double>(problem.machine.memory_bytes)) /
         static_cast<uint64_t>(problem.num_processes_on_machine);
}

Error does_not_fit(const MemoryPlan& plan, uint64_t kv_bytes, uint64_t budget, const MemoryProblem& problem) {
  const Settings& settings = *problem.settings;
  const MachineLimits& machine = problem.machine;
  return Error::invalid(fmt::format(
      "The model does not fit into memory. Required: {} weights + {} workspace{} + {} KV for a context of {} tokens. "
      "Offered: {} ({:.0f} % of {}, the {}; --mem-fraction-static). Missing: {}. Use a smaller --context-length, "
      "--chunked-prefill-size or --low-latency-slots, or a machine with more memory.",
      format_bytes(plan.weight_bytes), format_bytes(plan.workspace_bytes),
      plan.low_latency_tokens > 0
          ? fmt::format(" (with low-latency windows of {} slots per rank)", plan.low_latency_tokens)
          : "",
      format_bytes(kv_bytes), plan.context_length, format_bytes(budget), settings.mem_fraction_static * 100,
      format_bytes(machine.memory_bytes), machine.memory_from,
      format_bytes(plan.weight_bytes + plan.workspace_bytes + kv_bytes - budget)));
}

Error pool_too_small(const MemoryPlan& plan, const Settings& settings) {
  return Error::invalid(
      fmt::format("--max-total-tokens {} is less than one context of {} tokens. Raise it or lower --context-length.",
                  settings.max_total_tokens, plan.context_length),
      "--max-total-tokens");
}

Result<int64_t> choose_context_length(const Settings& settings, const ModelConfig& config) {
  if (settings.context_length < 0) return config.max_position_embeddings;
  if (settings.context_length <= config.max_position_embeddings) return settings.context_length;
  return fail(Error::invalid(
      fmt::format("--context-length {} is longer than the model's max_position_embeddings {}. Ask for at most that.",
                  settings.context_length, config.max_position_embeddings),
      "--context-length"));
}

// How many slots the layout's low-latency steps need, or the setting gives.
Result<int64_t> choose_low_latency_tokens(const Settings& settings, const ParallelLayout& layout,
                                          const MemoryPlan& plan) {
  if (layout.exchange == ExchangeKind::kNone || layout.mode == ExchangeMode::kNormal) return 0;
  const StepTokens most = most_tokens_per_rank(layout, plan);
  const bool is_forced = layout.mode == ExchangeMode::kLowLatency;
  const int64_t needed = is_forced ? most.with_prefill : most.decode_only;
  if (settings.low_latency_slots < 0) return needed;
  if (is_forced && settings.low_latency_slots < needed) {
    return fail(Error::invalid(
        fmt::format("Mode low_latency has {} slots per rank (--low-latency-slots), but the largest step brings {} "
                    "tokens to a rank (--chunked-prefill-size and --max-running-requests over {} DP groups). Required: "
                    "{} slots, or --deepep-mode auto, which sends steps with prompt tokens in the normal mode.",
                    settings.low_latency_slots, needed, layout.attention_dp, needed),
        "--low-latency-slots"));
  }
  return settings.low_latency_slots;
}

// Scratch memory of the ranks of this process, with their exchange windows.
uint64_t workspace_bytes_of(const MemoryProblem& problem, const MemoryPlan& plan) {
  const ParallelLayout& layout = *problem.layout;
  // A step has the prompt rows and one row for every decoding sequence.
  const int64_t rows = plan.tokens_per_step + plan.max_running;
  const uint64_t per_rank =
      Decoder::workspace_bytes(*problem.config, layout, rows, rows * layout.attention_dp) +
      low_latency_window_bytes(exchange_shape(*problem.config, layout, 1, plan.low_latency_tokens));
  uint64_t bytes = 0;
  const bool is_too_large = __builtin_mul_overflow(per_rank, static_cast<uint64_t>(problem.num_ranks), &bytes);
  return is_too_large ? std::numeric_limits<uint64_t>::max() / 4 : bytes;
}

// Bytes of one page over the ranks of this process. As threads they hold every layer once per rank of a stage.
uint64_t page_bytes_of(const MemoryProblem& problem) {
  const bool are_threads = problem.num_ranks == problem.layout->world_size();
  const int64_t layers =
      are_threads ? problem.config->num_layers * problem.layout->stage_size() : problem.num_layers_of_rank;
  return kv_bytes_per_token(layers, problem.config->kv_cache_width()) *
         static_cast<uint64_t>(problem.settings->page_size);
}

// The limits of a step, per DP group.
Status choose_step_limits(const MemoryProblem& problem, MemoryPlan& plan) {
  const Settings& settings = *problem.settings;
  const int64_t groups = problem.layout->attention_dp;
  GIMBAL_ASSIGN_OR_RETURN(plan.context_length, choose_context_length(settings, *problem.config));
  const int64_t max_running = settings.max_running_requests > 0 ? settings.max_running_requests : kDefaultMaxRunning;
  plan.max_running = std::max<int64_t>(max_running / groups, 1);
  if (settings.max_running_requests > 0 && plan.max_running * groups != max_running) {
    plan.notes.push_back(
        fmt::format("running requests: {} in each of {} DP groups, {} in all, for --max-running-requests {}",
                    plan.max_running, groups, plan.max_running * groups, max_running));
  }
  plan.tokens_per_step = settings.chunked_prefill_size > 0
                             ? std::min((settings.chunked_prefill_size + groups - 1) / groups, plan.context_length)
                             : plan.context_length;
  GIMBAL_ASSIGN_OR_RETURN(plan.low_latency_tokens, choose_low_latency_tokens(settings, *problem.layout, plan));
  plan.workspace_bytes = workspace_bytes_of(problem, plan);
  return {};
}

// Shortens a derived context to what `offered` pages hold, or says why that cannot be.
Status shorten_context(const MemoryProblem& problem, int64_t offered, int64_t affordable, MemoryPlan& plan) {
  const Settings& settings = *problem.settings;
  const uint64_t budget = budget_of(problem);
  const int64_t shorter = offered * settings.page_size;
  if (settings.context_length > 0 || shorter < std::min<int64_t>(kLeastContext, plan.context_length)) {
    const auto pages = static_cast<uint64_t>((plan.context_length + settings.page_size - 1) / settings.page_size);
    uint64_t kv_bytes = 0;
    if (__builtin_mul_overflow(pages, page_bytes_of(problem), &kv_bytes))
      kv_bytes = std::numeric_limits<uint64_t>::max() / 4;  // for the message only
    return fail(offered < affordable ? pool_too_small(plan, settings) : does_not_fit(plan, kv_bytes, budget, problem));
  }
  plan.notes.push_back(fmt::format("context: {} tokens instead of the model's {}, limited by {}", shorter,
                                   plan.context_length, offered < affordable ? "--max-total-tokens" : "memory"));
  plan.context_length = shorter;
  plan.tokens_per_step = std::min(plan.tokens_per_step, plan.context_length);
  return {};
}

}  // namespace

StepTokens most_tokens_per_rank(const ParallelLayout& layout, const MemoryPlan& memory) {
  const auto piece = [&](int64_t rows) { return (rows + layout.attention_tp - 1) / layout.attention_tp; };
  return {.with_prefill = piece(memory.tokens_per_step + memory.max_running), .decode_only = piece(memory.max_running)};
}

Result<MemoryPlan> plan_memory(const MemoryProblem& problem) {
  const Settings& settings = *problem.settings;
  MemoryPlan plan;
  plan.weight_bytes = problem.weight_bytes;
  GIMBAL_RETURN_IF_ERROR(choose_step_limits(problem, plan));
  const uint64_t budget = budget_of(problem);
  const uint64_t page_bytes = page_bytes_of(problem);
  const auto pages_for = [&](int64_t tokens) { return (tokens + settings.page_size - 1) / settings.page_size; };
  const uint64_t fixed = plan.weight_bytes + plan.workspace_bytes;
  const auto affordable = static_cast<int64_t>(budget > fixed ? (budget - fixed) / page_bytes : 0);

  const bool is_pool_given = settings.max_total_tokens > 0;
  const int64_t offered = std::min(affordable, is_pool_given ? pages_for(settings.max_total_tokens) : affordable);
  if (offered < pages_for(plan.context_length))
    GIMBAL_RETURN_IF_ERROR(shorten_context(problem, offered, affordable, plan));
  const int64_t wanted =
      is_pool_given ? pages_for(settings.max_total_tokens) : pages_for(plan.context_length) * plan.max_running;
  plan.num_pages = std::min(affordable, wanted);
  if (plan.num_pages < wanted) {
    plan.notes.push_back(fmt::format("KV pool: {} tokens instead of {}, limited by memory ({} of {})",
                                     plan.num_pages * settings.page_size, wanted * settings.page_size,
                                     format_bytes(budget), format_bytes(problem.machine.memory_bytes)));
  }
  plan.kv_bytes = static_cast<uint64_t>(plan.num_pages) * page_bytes;
  const double host_pages = settings.kv_host_ratio * static_cast<double>(plan.num_pages);
  plan.num_host_pages = static_cast<int64_t>(std::min(host_pages, static_cast<double>(affordable - plan.num_pages)));
  return plan;
}

}  // namespace gimbal
