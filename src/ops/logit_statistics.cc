#include "ops/logit_statistics.h"

#include <algorithm>
#include <cmath>

namespace gimbal {

double log_sum_exp(std::span<const float> logits) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - highest);
  return highest + std::log(sum);
}

std::vector<TopLogit> top_logits(std::span<const float> logits, int64_t count) {
  std::vector<TopLogit> entries;
  entries.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) entries.push_back({static_cast<int32_t>(i), logits[i]});
  const auto end = entries.begin() + std::min<std::ptrdiff_t>(count, static_cast<std::ptrdiff_t>(entries.size()));
  std::partial_sort(entries.begin(), end, entries.end(), [](const TopLogit& a, const TopLogit& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  });
  entries.erase(end, entries.end());
  return entries;
}

}  // namespace gimbal
