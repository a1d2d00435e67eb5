#include "ops/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/check.h"

namespace gimbal {

std::optional<int32_t> sampling(const SamplingArgs& args, const OpContext& context) {
  GIMBAL_CHECK(!args.logits.empty());
  if (context.backend == OpBackend::kReference) return sampling_reference(args);
  return sampling_cpu(args);
}

double uniform_random(uint64_t seed, uint64_t position) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57, kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  std::array<uint32_t, 4> counter = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0};
  auto key0 = static_cast<uint32_t>(seed);
  auto key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = static_cast<uint64_t>(kMultiplier0) * counter[0];
    const uint64_t product1 = static_cast<uint64_t>(kMultiplier1) * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  const uint64_t bits = (static_cast<uint64_t>(counter[0]) << 32 | counter[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

// Sorts the whole vocabulary; plain and slow.
std::optional<int32_t> sampling_reference(const SamplingArgs& args) {
  std::vector<double> scores(args.logits.begin(), args.logits.end());
  for (const double score : scores) {
    if (!std::isfinite(score)) return std::nullopt;
  }
  for (const int32_t id : args.forbidden_ids)
    scores[static_cast<size_t>(id)] = -std::numeric_limits<double>::infinity();
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  if (args.temperature == 0.0f) return order.front();
  if (args.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(args.top_k)));
  std::vector<double> weights;
  const double best = scores[static_cast<size_t>(order.front())];
  for (const int32_t id : order)
    weights.push_back(std::exp((scores[static_cast<size_t>(id)] - best) / args.temperature));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  size_t count = 0;
  double reached = 0.0;
  while (count < weights.size() && (count == 0 || reached < args.top_p * total)) reached += weights[count++];
  while (count > 1 && weights[count - 1] < args.min_p) --count;
  const double kept = std::accumulate(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(count), 0.0);
  double remaining = uniform_random(args.seed, static_cast<uint64_t>(args.position)) * kept;
  for (size_t i = 0; i + 1 < count; ++i) {
    remaining -= weights[i];
    if (remaining < 0.0) return order[i];
  }
  return order[count - 1];
}

}  // namespace gimbal
