#include "cli/sequence_scorer.h"

#include <algorithm>

namespace gimbal {
namespace {

// Every row of a step brings a row of logits; keep them well below what the model itself takes.
constexpr int64_t kMaxLogitBytes = int64_t{256} << 20;

// A pipeline wants several chunks in flight.
int64_t choose_rows_per_step(const RankExecutor& executor) {
  const int64_t by_memory = kMaxLogitBytes / static_cast<int64_t>(sizeof(float)) / executor.config().vocab_size;
  const int64_t by_plan = executor.plan().memory.tokens_per_step / executor.plan().layout.num_stages;
  return std::max<int64_t>(1, std::min(by_memory, by_plan));
}

}  // namespace

SequenceScorer::SequenceScorer(RankExecutor& executor, int64_t num_top_logits)
    : executor_(executor),
      num_top_logits_(num_top_logits),
      rows_per_step_(choose_rows_per_step(executor)),
      pools_(static_cast<size_t>(executor.plan().layout.attention_dp),
             PagePool(executor.plan().memory.num_pages, executor.plan().page_size)) {}

// Sequences go to the group with the most free pages; one that fits nowhere holds those behind it.
void SequenceScorer::admit(std::deque<ScoredSequence*>& waiting) {
  const auto most_running =
      static_cast<size_t>(executor_.plan().memory.max_running * executor_.plan().layout.attention_dp);
  while (!waiting.empty() && running_.size() < most_running) {
    const auto best = std::max_element(
        pools_.begin(), pools_.end(), [](const PagePool& a, const PagePool& b) { return a.num_free() < b.num_free(); });
    auto pages = best->take(best->pages_for(static_cast<int64_t>(waiting.front()->ids.size())));
    if (!pages) return;
    running_.push_back({.id = next_id_++,
                        .sequence = waiting.front(),
                        .group = static_cast<int32_t>(best - pools_.begin()),
                        .pages = std::move(*pages)});
    waiting.pop_front();
  }
}

PlannedSequence SequenceScorer::plan_chunk(Progress& progress, int64_t count) const {
  const auto& ids = progress.sequence->ids;
  const auto first = ids.begin() + progress.num_planned;
  PlannedSequence planned{.sequence_id = progress.id,
                          .dp_group = progress.group,
                          .token_ids = {first, first + count},
                          .first_position = progress.num_planned,
                          .pages = progress.pages,
                          .is_prefill = true,
                          .logit_rows = LogitRows::kAll,
                          .num_top_logits = static_cast<int32_t>(num_top_logits_)};
  for (int64_t row = 1; row <= count; ++row) {
    const auto next = static_cast<size_t>(progress.num_planned + row);
    planned.target_ids.push_back(next < ids.size() ? ids[next] : -1);
  }
  progress.num_planned += count;
  return planned;
}

StepPlan SequenceScorer::plan_step() {
  StepPlan plan{.step = next_step_++, .sequences = {}};
  std::vector<int64_t> budgets(pools_.size(), rows_per_step_);
  for (Progress& progress : running_) {
    int64_t& budget = budgets[static_cast<size_t>(progress.group)];
    const int64_t num_left = static_cast<int64_t>(progress.sequence->ids.size()) - progress.num_planned;
    const int64_t count = std::min(budget, num_left);
    if (count == 0) continue;
    plan.sequences.push_back(plan_chunk(progress, count));
    budget -= count;
  }
  return plan;
}

void SequenceScorer::take(const StepResult& result) {
  for (const SequenceResult& scored : result.sequences) {
    Progress& progress = *std::find_if(running_.begin(), running_.end(),
                                       [&](const Progress& running) { return running.id == scored.sequence_id; });
    for (const RowScore& row : scored.rows) {
      progress.sequence->top.push_back(row.top);
      if (++progress.num_scored < static_cast<int64_t>(progress.sequence->ids.size()))
        progress.sequence->nll.push_back(-row.log_probability);
    }
  }
}

Status SequenceScorer::run(std::vector<ScoredSequence> sequences,
                           const std::function<void(const ScoredSequence&)>& on_scored) {
  std::deque<ScoredSequence*> waiting;
  for (ScoredSequence& sequence : sequences) waiting.push_back(&sequence);
  while (true) {
    admit(waiting);
    while (executor_.num_in_flight() < executor_.plan().num_in_flight) {
      const StepPlan plan = plan_step();
      if (plan.sequences.empty()) break;
      GIMBAL_RETURN_IF_ERROR(executor_.submit(plan));
    }
    if (executor_.num_in_flight() == 0) return {};
    GIMBAL_ASSIGN_OR_RETURN(const StepResult result, executor_.wait());
    take(result);
    while (!running_.empty() &&
           running_.front().num_scored == static_cast<int64_t>(running_.front().sequence->ids.size())) {
      pools_[static_cast<size_t>(running_.front().group)].give_back(running_.front().pages);
      on_scored(*running_.front().sequence);
      running_.pop_front();
    }
  }
}

}  // namespace gimbal
