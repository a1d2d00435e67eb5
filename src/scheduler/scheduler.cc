#include "scheduler/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace gimbal {

Scheduler::Scheduler(const SchedulerLimits& limits, std::span<PagePool> pools) : limits_(limits), pools_(pools) {
  GIMBAL_CHECK_GE(limits.max_running, 1);
  GIMBAL_CHECK_GE(limits.tokens_per_step, 1);
  GIMBAL_CHECK_GE(limits.num_micro_batches, 1);
  GIMBAL_CHECK_GE(pools.size(), 1u);
}

// The last token sampled is never computed, so its key needs no place.
int64_t Scheduler::pages_needed(const SequenceRequest& request) const {
  return pools_[0].pages_for(static_cast<int64_t>(request.prompt_ids.size()) + request.max_new_tokens - 1);
}

void Scheduler::add(SequenceRequest request) {
  GIMBAL_CHECK(!request.prompt_ids.empty());
  GIMBAL_CHECK_GE(request.max_new_tokens, 1);
  GIMBAL_CHECK_LE(pages_needed(request), pools_[0].num_pages());
  queue_.push_back(std::move(request));
}

int64_t Scheduler::num_running_in(int32_t group) const {
  return std::count_if(running_.begin(), running_.end(),
                       [&](const Sequence& sequence) { return sequence.group == group; });
}

// The best group that has a free slot and the pages; ties go to the lower number.
std::optional<int32_t> Scheduler::choose_group(int64_t num_pages) const {
  std::optional<int32_t> best;
  int64_t best_score = 0;
  const auto num_groups = static_cast<int32_t>(pools_.size());
  for (int32_t group = 0; group < num_groups; ++group) {
    const int64_t num_running = num_running_in(group);
    if (num_running >= limits_.max_running || pools_[static_cast<size_t>(group)].num_free() < num_pages) continue;
    int64_t score = pools_[static_cast<size_t>(group)].num_free();
    if (limits_.group_choice == GroupChoice::kTotalRequests) score = -num_running;
    if (limits_.group_choice == GroupChoice::kRoundRobin)
      score = -((group - last_group_ - 1 + num_groups) % num_groups);
    if (best && score <= best_score) continue;
    best = group;
    best_score = score;
  }
  return best;
}

// First come, first served: a request that fits no group holds those behind it, so that it cannot starve.
void Scheduler::admit() {
  while (!queue_.empty()) {
    const int64_t num_pages = pages_needed(queue_.front());
    const std::optional<int32_t> group = choose_group(num_pages);
    if (!group) return;
    SequenceRequest request = std::move(queue_.front());
    queue_.pop_front();
    last_group_ = *group;
    const auto num_prompt = static_cast<int64_t>(request.prompt_ids.size());
    running_.push_back({.id = request.id,
                        .group = *group,
                        .tokens = std::move(request.prompt_ids),
                        .num_prompt = num_prompt,
                        .num_computed = 0,
                        .pages = *pools_[static_cast<size_t>(*group)].take(num_pages)});
  }
}

PlannedSequence Scheduler::plan_sequence(Sequence& sequence, int64_t num_tokens) const {
  const auto first = sequence.tokens.begin() + sequence.num_computed;
  PlannedSequence planned{.sequence_id = sequence.id,
                          .dp_group = sequence.group,
                          .token_ids = {first, first + num_tokens},
                          .first_position = sequence.num_computed,
                          .pages = sequence.pages,
                          .is_prefill = sequence.is_prefilling()};
  sequence.num_computed += num_tokens;
  const bool is_complete = sequence.num_computed == static_cast<int64_t>(sequence.tokens.size());
  planned.logit_rows = is_complete ? LogitRows::kLast : LogitRows::kNone;
  return planned;
}

void Scheduler::plan_group(int32_t group, StepPlan& plan) {
  int64_t num_decoding = 0;
  for (const Sequence& sequence : running_)
    num_decoding += sequence.group == group && !sequence.is_prefilling() ? 1 : 0;
  // An even share per micro-batch: taking all that are ready would leave the other stages without work.
  int64_t decode_rows = (num_decoding + limits_.num_micro_batches - 1) / limits_.num_micro_batches;
  int64_t budget = limits_.tokens_per_step;
  for (Sequence& sequence : running_) {
    if (sequence.group != group || !sequence.has_decode_row() || decode_rows == 0) continue;
    plan.sequences.push_back(plan_sequence(sequence, 1));
    --budget;
    --decode_rows;
  }
  // Prompts go on even when decode rows fill the budget: one row a step at least.
  budget = std::max<int64_t>(budget, 1);
  for (Sequence& sequence : running_) {
    const int64_t num_left = sequence.num_prompt - sequence.num_computed;
    if (sequence.group != group || num_left <= 0 || budget == 0) continue;
    const int64_t num_tokens = std::min(num_left, budget);
    plan.sequences.push_back(plan_sequence(sequence, num_tokens));
    budget -= num_tokens;
  }
}

std::optional<StepPlan> Scheduler::plan_step() {
  admit();
  StepPlan plan{.step = next_step_, .sequences = {}};
  for (int32_t group = 0; group < static_cast<int32_t>(pools_.size()); ++group) plan_group(group, plan);
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
  pools_[static_cast<size_t>(found->group)].give_back(found->pages);
  running_.erase(found);
  return true;
}

}  // namespace gimbal
