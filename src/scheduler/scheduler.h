// Scheduler: decides what every step computes. Pure: no I/O, no clock, no threads. README.md beside it is its contract.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "kv_cache/page_pool.h"
#include "scheduler/step_plan.h"

namespace gimbal {

enum class GroupChoice : uint8_t {
  kTotalTokens,    // the group with the most free pages
  kTotalRequests,  // the group with the fewest running sequences
  kRoundRobin,     // the group after the last one
};

// Per DP group; one group when attention is not data parallel.
struct SchedulerLimits {
  int64_t max_running = 1;      // sequences that hold pages at once
  int64_t tokens_per_step = 0;  // rows of one step; decode rows first, prompt chunks in what is left (at least one row)
  int64_t num_micro_batches = 1;  // plans that may be in flight; decode rows are spread evenly over them
  GroupChoice group_choice = GroupChoice::kTotalTokens;
};

struct SequenceRequest {
  uint64_t id = 0;
  std::vector<int32_t> prompt_ids;  // not empty
  int64_t max_new_tokens = 0;       // at least 1
};

class Scheduler {
 public:
  // One pool per DP group, all of the same size; they must outlive the scheduler.
  Scheduler(const SchedulerLimits& limits, std::span<PagePool> pools);

  // Queues a sequence. It must fit a pool when it is alone (programmer's error otherwise: the engine checks at the
  // door).
  void add(SequenceRequest request);

  // The next step, or nullopt when nothing can run now. A sequence that was planned with LogitRows::kLast is left out
  // until it has got its token by append_token. Steps must be executed in the order of planning.
  std::optional<StepPlan> plan_step();

  // The token sampled for a sequence; it is computed in one of the next steps.
  void append_token(uint64_t id, int32_t token);

  // Ends a sequence, queued or running, and frees its pages. False when the id is unknown.
  bool finish(uint64_t id);

  int64_t num_queued() const { return static_cast<int64_t>(queue_.size()); }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }

 private:
  struct Sequence {
    uint64_t id = 0;
    int32_t group = 0;
    std::vector<int32_t> tokens;  // prompt, then generated
    int64_t num_prompt = 0;
    int64_t num_computed = 0;  // tokens whose keys are in the cache
    std::vector<PageId> pages;
    bool is_prefilling() const { return num_computed < num_prompt; }
    bool has_decode_row() const { return !is_prefilling() && num_computed + 1 == static_cast<int64_t>(tokens.size()); }
  };
  int64_t pages_needed(const SequenceRequest& request) const;
  int64_t num_running_in(int32_t group) const;
  std::optional<int32_t> choose_group(int64_t num_pages) const;
  void admit();
  void plan_group(int32_t group, StepPlan& plan);
  PlannedSequence plan_sequence(Sequence& sequence, int64_t num_tokens) const;

  SchedulerLimits limits_;
  std::span<PagePool> pools_;  // [num groups]
  int32_t last_group_ = -1;    // that got a sequence
  std::deque<SequenceRequest> queue_;
  std::vector<Sequence> running_;  // in order of admission
  uint64_t next_step_ = 0;
};

}  // namespace gimbal
