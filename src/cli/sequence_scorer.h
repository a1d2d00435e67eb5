// SequenceScorer: runs whole sequences through the model and reports every position.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "engine/rank_executor.h"
#include "kv_cache/page_pool.h"
#include "ops/logit_statistics.h"

namespace gimbal {

struct ScoredSequence {
  std::string id;
  std::vector<int32_t> ids;
  std::vector<double> nll;                 // [ids.size() - 1], of ids[1..]
  std::vector<std::vector<TopLogit>> top;  // [ids.size()][K], prediction after each id
};

// Sequences run side by side up to the plan's limits, spread over the DP groups, each cut into chunks that fill the
// steps; as many steps are in flight as the pipeline has stages. Results come in the order of adding.
class SequenceScorer {
 public:
  SequenceScorer(RankExecutor& executor, int64_t num_top_logits);

  // Calls `on_scored` once per sequence, in order.
  Status run(std::vector<ScoredSequence> sequences, const std::function<void(const ScoredSequence&)>& on_scored);

 private:
  struct Progress {
    uint64_t id = 0;
    ScoredSequence* sequence = nullptr;
    int32_t group = 0;
    std::vector<PageId> pages;
    int64_t num_planned = 0;
    int64_t num_scored = 0;
  };
  void admit(std::deque<ScoredSequence*>& waiting);
  StepPlan plan_step();
  PlannedSequence plan_chunk(Progress& progress, int64_t count) const;
  void take(const StepResult& result);

  RankExecutor& executor_;
  int64_t num_top_logits_;
  int64_t rows_per_step_;         // per DP group
  std::vector<PagePool> pools_;   // [num DP groups]
  std::deque<Progress> running_;  // in order of adding
  uint64_t next_id_ = 0;
  uint64_t next_step_ = 1;
};

}  // namespace gimbal
