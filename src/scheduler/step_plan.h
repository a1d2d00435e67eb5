// StepPlan: all decisions of one step. One scheduler makes it, every rank executes the identical plan. With pipeline
// stages several plans are in flight; they hold disjoint decode rows and are executed in order by every stage.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/logit_bias.h"
#include "kv_cache/page_pool.h"

namespace gimbal {

enum class LogitRows {
  kNone,  // a chunk that does not end its prompt
  kLast,  // a token will be sampled after the last row
  kAll,   // scoring
};

// How the token after a kLast row is sampled. Everything the choice depends on, so that any rank makes the same one.
struct SamplingPlan {
  float temperature = 0.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
  uint64_t seed = 0;
  int64_t position = 0;                     // of the token to be sampled
  std::vector<int32_t> forbidden_ids = {};  // [any number]
  std::vector<LogitBias> biases = {};       // added to logits
  // Tokens seen so far and what they cost; empty when no penalty is set.
  std::vector<TokenCount> seen = {};
  float repetition_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
};

// Work on a page ahead of the computation of a step, in the order of the plan.
struct PageMove {
  enum class Kind : uint8_t { kToHost, kToDevice, kCopy };
  int32_t dp_group = 0;
  Kind kind = Kind::kCopy;
  PageId from = 0;
  PageId to = 0;
};

// The tokens of one sequence in this step, at positions first_position, first_position + 1, ...
struct PlannedSequence {
  uint64_t sequence_id = 0;
  int32_t dp_group = 0;  // whose ranks hold its pages
  std::vector<int32_t> token_ids = {};
  int64_t first_position = 0;
  std::vector<PageId> pages = {};  // of the whole sequence, in order; cover first_position + token_ids.size() tokens
  bool is_prefill = false;         // tokens of the prompt; false with several tokens: computed again as they were
  LogitRows logit_rows = LogitRows::kNone;
  bool wants_token = false;                   // the next token is chosen after the last row
  std::optional<SamplingPlan> sampling = {};  // with wants_token
  bool wants_log_probability = false;         // of the chosen token
  int32_t num_top_logits = 0;                 // highest logits to report for every logit row
  std::vector<int32_t> target_ids = {};       // [logit rows] ids whose log-probability is wanted, -1: none; or empty
};

struct StepPlan {
  uint64_t step = 0;
  std::vector<PageMove> moves = {};
  std::vector<PlannedSequence> sequences = {};
  int64_t num_tokens() const {
    int64_t count = 0;
    for (const PlannedSequence& sequence : sequences) count += static_cast<int64_t>(sequence.token_ids.size());
    return count;
  }
  bool has_prefill() const {
    for (const PlannedSequence& sequence : sequences) {
      if (sequence.is_prefill) return true;
    }
    return false;
  }
  // Rows of every DP group: [num_groups]
  std::vector<int64_t> group_rows(int64_t num_groups) const {
    std::vector<int64_t> rows(static_cast<size_t>(num_groups), 0);
    for (const PlannedSequence& sequence : sequences)
      rows[static_cast<size_t>(sequence.dp_group)] += static_cast<int64_t>(sequence.token_ids.size());
    return rows;
  }
};

}  // namespace gimbal
