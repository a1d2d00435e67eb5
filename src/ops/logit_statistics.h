// logit_statistics: what `score` reports of one row of logits: log-sum-exp and the highest entries.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gimbal {

struct TopLogit {
  int32_t id = 0;
  float logit = 0.0f;
};

// log(sum(exp(logits))), accumulated in double in index order.
double log_sum_exp(std::span<const float> logits);

// The `count` highest logits, best first, ties to the lower id.
std::vector<TopLogit> top_logits(std::span<const float> logits, int64_t count);

}  // namespace gimbal
