// StepResult: what a step gave for the sequences that wanted logits.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "ops/logit_statistics.h"

namespace gimbal {

// Of one row of logits.
struct RowScore {
  std::vector<TopLogit> top = {};  // [num_top_logits] best first
  double log_sum_exp = 0;          // log-probability of an id = its logit - log_sum_exp
  // Of the wanted id, natural logarithm; NaN when none was wanted.
  double log_probability = std::numeric_limits<double>::quiet_NaN();
};

struct SequenceResult {
  uint64_t sequence_id = 0;
  bool is_finite = true;                 // false: a logit was not a number, nothing was sampled
  std::optional<int32_t> token_id = {};  // sampled
  double log_probability = std::numeric_limits<double>::quiet_NaN();  // of token_id, when it was wanted
  std::vector<RowScore> rows = {};                                    // [logit rows] when scores were asked for
};

struct StepResult {
  uint64_t step = 0;
  std::vector<SequenceResult> sequences = {};  // those with logits, by DP group, in plan order
};

}  // namespace gimbal
