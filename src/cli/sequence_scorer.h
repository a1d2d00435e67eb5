// SequenceScorer: runs whole sequences through the model and reports every position.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "engine/model_runner.h"
#include "kv_cache/page_pool.h"
#include "ops/logit_statistics.h"

namespace gimbal {

struct ScoredSequence {
  std::string id;
  std::vector<int32_t> ids;
  std::vector<double> nll;                 // [ids.size() - 1], of ids[1..]
  std::vector<std::vector<TopLogit>> top;  // [ids.size()][K], prediction after each id
};

// Sequences run side by side up to the runner's limits, each cut into chunks that fill the steps. Results come in the
// order of adding.
class SequenceScorer {
 public:
  SequenceScorer(ModelRunner& runner, int64_t num_top_logits);

  // Calls `on_scored` once per sequence, in order.
  void run(std::vector<ScoredSequence> sequences, const std::function<void(const ScoredSequence&)>& on_scored);

 private:
  struct Progress {
    ScoredSequence* sequence = nullptr;
    std::vector<PageId> pages;
    int64_t num_computed = 0;
  };
  void admit(std::deque<ScoredSequence*>& waiting);
  StepPlan plan_step();
  void take_logits(const StepPlan& plan, std::span<const float> logits);

  ModelRunner& runner_;
  int64_t num_top_logits_;
  int64_t rows_per_step_;
  PagePool pool_;
  std::vector<Progress> running_;
};

}  // namespace gimbal
