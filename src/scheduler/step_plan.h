// StepPlan: all decisions of one step. One scheduler makes it, every rank executes the identical plan.
#pragma once

#include <cstdint>
#include <vector>

#include "kv_cache/page_pool.h"

namespace gimbal {

enum class LogitRows {
  kNone,  // a chunk that does not end its prompt
  kLast,  // a token will be sampled after the last row
  kAll,   // scoring
};

// The tokens of one sequence in this step, at positions first_position, first_position + 1, ...
struct PlannedSequence {
  uint64_t sequence_id = 0;
  std::vector<int32_t> token_ids;
  int64_t first_position = 0;
  std::vector<PageId> pages;  // of the whole sequence, in order; cover first_position + token_ids.size() tokens
  bool is_prefill = false;    // tokens of the prompt
  LogitRows logit_rows = LogitRows::kNone;
};

struct StepPlan {
  uint64_t step = 0;
  std::vector<PlannedSequence> sequences;
  int64_t num_tokens() const {
    int64_t count = 0;
    for (const PlannedSequence& sequence : sequences) count += static_cast<int64_t>(sequence.token_ids.size());
    return count;
  }
};

}  // namespace gimbal
