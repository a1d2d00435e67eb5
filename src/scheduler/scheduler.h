// Scheduler: decides what every step computes. Pure: no I/O, no clock, no threads. README.md beside it is its contract.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "kv_cache/page_pool.h"
#include "scheduler/step_plan.h"

namespace gimbal {

struct SchedulerLimits {
  int64_t max_running = 1;      // sequences that hold pages at once
  int64_t tokens_per_step = 0;  // rows of one step; decode rows first, prompt chunks in what is left (at least one row)
};

struct SequenceRequest {
  uint64_t id = 0;
  std::vector<int32_t> prompt_ids;  // not empty
  int64_t max_new_tokens = 0;       // at least 1
};

class Scheduler {
 public:
  // `pool` must outlive the scheduler.
  Scheduler(const SchedulerLimits& limits, PagePool* pool);

  // Queues a sequence. It must fit the pool when it is alone (programmer's error otherwise: the engine checks at the
  // door).
  void add(SequenceRequest request);

  // The next step, or nullopt when nothing can run. Every sequence with LogitRows::kLast must get its token by
  // append_token or be ended by finish before the next call.
  std::optional<StepPlan> plan_step();

  // The token sampled for a sequence of the last step; it is computed in the next one.
  void append_token(uint64_t id, int32_t token);

  // Ends a sequence, queued or running, and frees its pages. False when the id is unknown.
  bool finish(uint64_t id);

  int64_t num_queued() const { return static_cast<int64_t>(queue_.size()); }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }

 private:
  struct Sequence {
    uint64_t id = 0;
    std::vector<int32_t> tokens;  // prompt, then generated
    int64_t num_prompt = 0;
    int64_t num_computed = 0;  // tokens whose keys are in the cache
    std::vector<PageId> pages;
    bool is_prefilling() const { return num_computed < num_prompt; }
  };
  int64_t pages_needed(const SequenceRequest& request) const;
  void admit();
  PlannedSequence plan_sequence(Sequence& sequence, int64_t num_tokens) const;

  SchedulerLimits limits_;
  PagePool* pool_;
  std::deque<SequenceRequest> queue_;
  std::vector<Sequence> running_;  // in order of admission
  uint64_t next_step_ = 0;
};

}  // namespace gimbal
