// logit_adjustment: what a request adds to its logits before a token is chosen.
//
// Order: repetition penalty, then frequency and presence penalties, then biases. Repetition (Keskar et al., CTRL)
// divides positive and multiplies negative logits of tokens of the prompt and the answer; frequency and presence
// (OpenAI's API) subtract from tokens of the answer: count x frequency + presence.
#pragma once

#include <cstdint>
#include <span>

#include "base/logit_bias.h"

namespace gimbal {

struct LogitAdjustmentArgs {
  std::span<const LogitBias> biases = {};  // ids inside the vocabulary, each once
  std::span<const TokenCount> seen = {};   // ids inside the vocabulary, each once
  float repetition_penalty = 1.0f;         // 1: none
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
};

// logits: [vocab_size]
void logit_adjustment(const LogitAdjustmentArgs& args, std::span<float> logits);

}  // namespace gimbal
