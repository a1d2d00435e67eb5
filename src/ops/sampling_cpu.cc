#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/sampling.h"

namespace gimbal {
namespace {

struct Candidate {
  float logit;
  int32_t id;
};

// Likeliest first, ties to the lower id.
bool is_better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

bool is_forbidden(const SamplingArgs& args, int32_t id) {
  return std::find(args.forbidden_ids.begin(), args.forbidden_ids.end(), id) != args.forbidden_ids.end();
}

// Candidates in order, sorted only as far as the filters need: the first block by partial sort, more when top_p asks
// for more.
std::vector<Candidate> sort_candidates(const SamplingArgs& args, size_t count) {
  std::vector<Candidate> candidates;
  candidates.reserve(args.logits.size());
  for (size_t i = 0; i < args.logits.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const bool allowed = args.forbidden_ids.empty() || !is_forbidden(args, id);
    candidates.push_back({allowed ? args.logits[i] : -std::numeric_limits<float>::infinity(), id});
  }
  count = std::min(count, candidates.size());
  if (count < candidates.size()) {
    std::nth_element(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count), candidates.end(),
                     is_better);
    candidates.resize(count);
  }
  std::sort(candidates.begin(), candidates.end(), is_better);
  return candidates;
}

std::optional<int32_t> pick_highest(const SamplingArgs& args) {
  std::optional<int32_t> best;
  for (size_t i = 0; i < args.logits.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (best && args.logits[i] <= args.logits[static_cast<size_t>(*best)]) continue;
    if (!is_forbidden(args, id)) best = id;
  }
  return best;
}

int32_t draw(const std::vector<Candidate>& candidates, const std::vector<double>& weights, double target) {
  for (size_t i = 0; i + 1 < weights.size(); ++i) {
    target -= weights[i];
    if (target < 0.0) return candidates[i].id;
  }
  return candidates[weights.size() - 1].id;
}

}  // namespace

std::optional<int32_t> sampling_cpu(const SamplingArgs& args) {
  // NaN and infinity times zero are not zero, so one pass finds any of them.
  float poison = 0.0f;
  for (const float logit : args.logits) poison += logit * 0.0f;
  if (std::isnan(poison)) return std::nullopt;
  if (args.temperature == 0.0f) return pick_highest(args);

  const size_t limit = args.top_k > 0 ? static_cast<size_t>(args.top_k) : args.logits.size();
  const std::vector<Candidate> candidates = sort_candidates(args, limit);
  std::vector<double> weights;
  weights.reserve(candidates.size());
  double total = 0.0;
  for (const Candidate& candidate : candidates) {
    const double difference = static_cast<double>(candidate.logit) - candidates.front().logit;
    weights.push_back(std::exp(difference / args.temperature));
    total += weights.back();
  }
  size_t count = 0;
  double kept = 0.0;
  while (count < weights.size() && (count == 0 || kept < args.top_p * total)) {
    if (count > 0 && weights[count] < args.min_p) break;
    kept += weights[count++];
  }
  weights.resize(count);
  return draw(candidates, weights, uniform_random(args.seed, static_cast<uint64_t>(args.position)) * kept);
}

}  // namespace gimbal
