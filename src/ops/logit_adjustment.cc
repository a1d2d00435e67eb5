#include "ops/logit_adjustment.h"

#include "base/check.h"

namespace gimbal {

void logit_adjustment(const LogitAdjustmentArgs& args, std::span<float> logits) {
  for (const TokenCount& token : args.seen) {
    GIMBAL_CHECK_LT(static_cast<size_t>(token.id), logits.size());
    float& logit = logits[static_cast<size_t>(token.id)];
    logit = logit > 0.0f ? logit / args.repetition_penalty : logit * args.repetition_penalty;
    if (token.num_generated == 0) continue;
    logit -= static_cast<float>(token.num_generated) * args.frequency_penalty + args.presence_penalty;
  }
  for (const LogitBias& bias : args.biases) {
    GIMBAL_CHECK_LT(static_cast<size_t>(bias.id), logits.size());
    logits[static_cast<size_t>(bias.id)] += bias.bias;
  }
}

}  // namespace gimbal
