#include "cli/sequence_scorer.h"

#include <algorithm>

namespace gimbal {
namespace {

// Every row of a step brings a row of logits; keep them well below what the model itself takes.
constexpr int64_t kMaxLogitBytes = int64_t{256} << 20;

}  // namespace

SequenceScorer::SequenceScorer(ModelRunner& runner, int64_t num_top_logits)
    : runner_(runner),
      num_top_logits_(num_top_logits),
      rows_per_step_(
          std::clamp<int64_t>(kMaxLogitBytes / static_cast<int64_t>(sizeof(float)) / runner.config().vocab_size, 1,
                              runner.description().tokens_per_step)),
      pool_(runner.description().kv_tokens / runner.description().page_size, runner.description().page_size) {}

void SequenceScorer::admit(std::deque<ScoredSequence*>& waiting) {
  while (!waiting.empty() && static_cast<int64_t>(running_.size()) < runner_.description().max_running) {
    auto pages = pool_.take(pool_.pages_for(static_cast<int64_t>(waiting.front()->ids.size())));
    if (!pages) return;
    running_.push_back({.sequence = waiting.front(), .pages = std::move(*pages), .num_computed = 0});
    waiting.pop_front();
  }
}

StepPlan SequenceScorer::plan_step() {
  StepPlan plan;
  int64_t budget = rows_per_step_;
  for (Progress& progress : running_) {
    const auto& ids = progress.sequence->ids;
    const int64_t count = std::min(budget, static_cast<int64_t>(ids.size()) - progress.num_computed);
    if (count == 0) break;
    const auto first = ids.begin() + progress.num_computed;
    plan.sequences.push_back({.sequence_id = 0,
                              .token_ids = {first, first + count},
                              .first_position = progress.num_computed,
                              .pages = progress.pages,
                              .is_prefill = true,
                              .logit_rows = LogitRows::kAll});
    budget -= count;
  }
  return plan;
}

void SequenceScorer::take_logits(const StepPlan& plan, std::span<const float> logits) {
  const auto vocab_size = static_cast<size_t>(runner_.config().vocab_size);
  for (size_t i = 0; i < plan.sequences.size(); ++i) {
    Progress& progress = running_[i];
    ScoredSequence& sequence = *progress.sequence;
    for (size_t row = 0; row < plan.sequences[i].token_ids.size(); ++row) {
      const std::span<const float> row_logits = logits.first(vocab_size);
      logits = logits.subspan(vocab_size);
      sequence.top.push_back(top_logits(row_logits, num_top_logits_));
      const auto next = static_cast<size_t>(progress.num_computed) + 1;
      if (next < sequence.ids.size()) {
        sequence.nll.push_back(log_sum_exp(row_logits) -
                               static_cast<double>(row_logits[static_cast<size_t>(sequence.ids[next])]));
      }
      ++progress.num_computed;
    }
  }
}

void SequenceScorer::run(std::vector<ScoredSequence> sequences,
                         const std::function<void(const ScoredSequence&)>& on_scored) {
  std::deque<ScoredSequence*> waiting;
  for (ScoredSequence& sequence : sequences) waiting.push_back(&sequence);
  admit(waiting);
  while (!running_.empty()) {
    const StepPlan plan = plan_step();
    take_logits(plan, runner_.run(plan));
    // Rows are given out in order, so sequences are done in order.
    while (!running_.empty() &&
           running_.front().num_computed == static_cast<int64_t>(running_.front().sequence->ids.size())) {
      pool_.give_back(running_.front().pages);
      on_scored(*running_.front().sequence);
      running_.erase(running_.begin());
    }
    admit(waiting);
  }
}

}  // namespace gimbal
