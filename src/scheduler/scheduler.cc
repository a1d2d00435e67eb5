#include "scheduler/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace gimbal {

Scheduler::Scheduler(const SchedulerLimits& limits, PagePool* pool) : limits_(limits), pool_(pool) {
  GIMBAL_CHECK_GE(limits.max_running, 1);
  GIMBAL_CHECK_GE(limits.tokens_per_step, 1);
}

// The last token sampled is never computed, so its key needs no place.
int64_t Scheduler::pages_needed(const SequenceRequest& request) const {
  return pool_->pages_for(static_cast<int64_t>(request.prompt_ids.size()) + request.max_new_tokens - 1);
}

void Scheduler::add(SequenceRequest request) {
  GIMBAL_CHECK(!request.prompt_ids.empty());
  GIMBAL_CHECK_GE(request.max_new_tokens, 1);
  GIMBAL_CHECK_LE(pages_needed(request), pool_->num_pages());
  queue_.push_back(std::move(request));
}

// First come, first served: a request that does not fit holds those behind it, so that it cannot starve.
void Scheduler::admit() {
  while (!queue_.empty() && num_running() < limits_.max_running) {
    auto pages = pool_->take(pages_needed(queue_.front()));
    if (!pages) return;
    SequenceRequest request = std::move(queue_.front());
    queue_.pop_front();
    const auto num_prompt = static_cast<int64_t>(request.prompt_ids.size());
    running_.push_back({.id = request.id,
                        .tokens = std::move(request.prompt_ids),
                        .num_prompt = num_prompt,
                        .num_computed = 0,
                        .pages = std::move(*pages)});
  }
}

PlannedSequence Scheduler::plan_sequence(Sequence& sequence, int64_t num_tokens) const {
  const auto first = sequence.tokens.begin() + sequence.num_computed;
  PlannedSequence planned{.sequence_id = sequence.id,
                          .token_ids = {first, first + num_tokens},
                          .first_position = sequence.num_computed,
                          .pages = sequence.pages,
                          .is_prefill = sequence.is_prefilling()};
  sequence.num_computed += num_tokens;
  const bool is_complete = sequence.num_computed == static_cast<int64_t>(sequence.tokens.size());
  planned.logit_rows = is_complete ? LogitRows::kLast : LogitRows::kNone;
  return planned;
}

std::optional<StepPlan> Scheduler::plan_step() {
  admit();
  StepPlan plan{.step = next_step_, .sequences = {}};
  int64_t budget = limits_.tokens_per_step;
  for (Sequence& sequence : running_) {
    if (sequence.is_prefilling()) continue;
    GIMBAL_CHECK_EQ(sequence.num_computed + 1, static_cast<int64_t>(sequence.tokens.size()));
    plan.sequences.push_back(plan_sequence(sequence, 1));
    --budget;
  }
  // Prompts go on even when decode rows fill the budget: one row a step at least.
  budget = std::max<int64_t>(budget, 1);
  for (Sequence& sequence : running_) {
    const int64_t num_left = sequence.num_prompt - sequence.num_computed;
    if (num_left <= 0 || budget == 0) continue;
    const int64_t num_tokens = std::min(num_left, budget);
    plan.sequences.push_back(plan_sequence(sequence, num_tokens));
    budget -= num_tokens;
  }
  if (plan.sequences.empty()) return std::nullopt;
  ++next_step_;
  return plan;
}

void Scheduler::append_token(uint64_t id, int32_t token) {
  const auto found =
      std::find_if(running_.begin(), running_.end(), [&](const Sequence& sequence) { return sequence.id == id; });
  GIMBAL_CHECK(found != running_.end());
  GIMBAL_CHECK_EQ(found->num_computed, static_cast<int64_t>(found->tokens.size()));
  found->tokens.push_back(token);
}

bool Scheduler::finish(uint64_t id) {
  const auto queued =
      std::find_if(queue_.begin(), queue_.end(), [&](const SequenceRequest& request) { return request.id == id; });
  if (queued != queue_.end()) {
    queue_.erase(queued);
    return true;
  }
  const auto found =
      std::find_if(running_.begin(), running_.end(), [&](const Sequence& sequence) { return sequence.id == id; });
  if (found == running_.end()) return false;
  pool_->give_back(found->pages);
  running_.erase(found);
  return true;
}

}  // namespace gimbal
