// StepPlan: all decisions of one step. One scheduler makes it, every rank executes the identical plan. With pipeline
// stages several plans are in flight; they hold disjoint decode rows and are executed in order by every stage.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

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
};

// The tokens of one sequence in this step, at positions first_position, first_position + 1, ...
struct PlannedSequence {
  uint64_t sequence_id = 0;
  int32_t dp_group = 0;  // whose ranks hold its pages
  std::vector<int32_t> token_ids = {};
  int64_t first_position = 0;
  std::vector<PageId> pages = {};  // of the whole sequence, in order; cover first_position + token_ids.size() tokens
  bool is_prefill = false;         // tokens of the prompt
  LogitRows logit_rows = LogitRows::kNone;
  std::optional<SamplingPlan> sampling = {};  // with kLast
  int32_t num_top_logits = 0;                 // highest logits to report for every logit row
  std::vector<int32_t> target_ids = {};       // [logit rows] ids whose log-probability is wanted, -1: none; or empty
};

struct StepPlan {
  uint64_t step = 0;
  std::vector<PlannedSequence> sequences;
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
