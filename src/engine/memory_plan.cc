#include "engine/memory_plan.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "base/byte_size.h"
#include "kv_cache/kv_storage.h"
#include "model/deepseek_v3/decoder.h"

namespace gimbal {
namespace {

constexpr int64_t kDefaultMaxRunning = 16;
constexpr int64_t kLeastContext = 512;  // a derived context is not made shorter than this

Error does_not_fit(const MemoryPlan& plan, uint64_t kv_bytes, uint64_t budget, const Settings& settings,
                   const MachineLimits& machine) {
  return Error::invalid(fmt::format(
      "The model does not fit into memory. Required: {} weights + {} workspace + {} KV for a context of {} tokens. "
      "Offered: {} "
      "({:.0f} % of {}, the {}; --mem-fraction-static). Missing: {}. Use a smaller --context-length or "
      "--chunked-prefill-size, or a machine with more memory.",
      format_bytes(plan.weight_bytes), format_bytes(plan.workspace_bytes), format_bytes(kv_bytes), plan.context_length,
      format_bytes(budget), settings.mem_fraction_static * 100, format_bytes(machine.memory_bytes), machine.memory_from,
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

}  // namespace

Result<MemoryPlan> plan_memory(const Settings& settings, const ModelConfig& config, uint64_t weight_bytes,
                               const MachineLimits& machine) {
  MemoryPlan plan;
  plan.weight_bytes = weight_bytes;
  GIMBAL_ASSIGN_OR_RETURN(plan.context_length, choose_context_length(settings, config));
  plan.max_running = settings.max_running_requests > 0 ? settings.max_running_requests : kDefaultMaxRunning;
  plan.tokens_per_step = settings.chunked_prefill_size > 0
                             ? std::min(settings.chunked_prefill_size, plan.context_length)
                             : plan.context_length;
  // A step has the prompt rows and one row for every decoding sequence.
  plan.workspace_bytes = Decoder::workspace_bytes(config, plan.tokens_per_step + plan.max_running);

  const auto budget = static_cast<uint64_t>(settings.mem_fraction_static * static_cast<double>(machine.memory_bytes));
  const uint64_t page_bytes =
      kv_bytes_per_token(config.num_layers, config.kv_cache_width()) * static_cast<uint64_t>(settings.page_size);
  const auto pages_for = [&](int64_t tokens) { return (tokens + settings.page_size - 1) / settings.page_size; };
  const uint64_t fixed = plan.weight_bytes + plan.workspace_bytes;
  const auto affordable = static_cast<int64_t>(budget > fixed ? (budget - fixed) / page_bytes : 0);

  const bool is_pool_given = settings.max_total_tokens > 0;
  const int64_t offered = std::min(affordable, is_pool_given ? pages_for(settings.max_total_tokens) : affordable);
  if (offered < pages_for(plan.context_length)) {
    // A context that was asked for is never shortened; one that was derived from the model is, with a note.
    const bool is_context_given = settings.context_length > 0;
    const int64_t shorter = offered * settings.page_size;
    if (is_context_given || shorter < std::min<int64_t>(kLeastContext, plan.context_length)) {
      uint64_t kv_bytes = 0;
      if (__builtin_mul_overflow(static_cast<uint64_t>(pages_for(plan.context_length)), page_bytes, &kv_bytes)) {
        kv_bytes = std::numeric_limits<uint64_t>::max() / 4;  // for the message only
      }
      return fail(offered < affordable ? pool_too_small(plan, settings)
                                       : does_not_fit(plan, kv_bytes, budget, settings, machine));
    }
    plan.notes.push_back(fmt::format("context: {} tokens instead of the model's {}, limited by {}", shorter,
                                     plan.context_length, offered < affordable ? "--max-total-tokens" : "memory"));
    plan.context_length = shorter;
    plan.tokens_per_step = std::min(plan.tokens_per_step, plan.context_length);
  }
  const int64_t wanted =
      is_pool_given ? pages_for(settings.max_total_tokens) : pages_for(plan.context_length) * plan.max_running;
  plan.num_pages = std::min(affordable, wanted);
  if (plan.num_pages < wanted) {
    plan.notes.push_back(fmt::format("KV pool: {} tokens instead of {}, limited by memory ({} of {})",
                                     plan.num_pages * settings.page_size, wanted * settings.page_size,
                                     format_bytes(budget), format_bytes(machine.memory_bytes)));
  }
  plan.kv_bytes = static_cast<uint64_t>(plan.num_pages) * page_bytes;
  return plan;
}

}  // namespace gimbal
