// sampling: one token id from one row of logits.
//
// Order: temperature, then top_k, then top_p, then min_p, each on what the one before left; then one draw. The random
// number depends on (seed, position) only, so a token does not depend on what else is in the batch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "ops/op_context.h"

namespace gimbal {

struct SamplingArgs {
  std::span<const float> logits = {};  // [vocab_size], finite
  float temperature = 1.0f;            // 0: highest logit, ties to the lower id
  int32_t top_k = 0;                   // 0: all
  float top_p = 1.0f;                  // smallest set of the likeliest ids whose probability reaches top_p
  float min_p = 0.0f;                  // ids below min_p times the likeliest one's probability are dropped
  uint64_t seed = 0;
  int64_t position = 0;                         // of the token to be sampled in its sequence
  std::span<const int32_t> forbidden_ids = {};  // [any number], never sampled
};

// nullopt when a logit is not finite: the caller ends the request with an error instead of a made-up token.
std::optional<int32_t> sampling(const SamplingArgs& args, const OpContext& context);
std::optional<int32_t> sampling_cpu(const SamplingArgs& args);
std::optional<int32_t> sampling_reference(const SamplingArgs& args);

// Uniform in [0, 1) from (seed, position): Philox 4x32 with 10 rounds (Salmon et al., SC11), 53 bits.
double uniform_random(uint64_t seed, uint64_t position);

}  // namespace gimbal
