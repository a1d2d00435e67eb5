// Scheduler: decides what every step computes. Pure: no I/O, no clock, no threads. README.md beside it is its contract.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kv_cache/group_cache.h"
#include "scheduler/step_plan.h"

namespace gimbal {

enum class GroupChoice : uint8_t {
  kTotalTokens,    // the group with the fewest promised pages, less those of a prompt it knows already
  kTotalRequests,  // the group with the fewest running sequences
  kRoundRobin,     // the group after the last one
};

// Per DP group; one group when attention is not data parallel.
struct SchedulerLimits {
  int64_t max_running = 1;      // sequences that are computed side by side
  int64_t tokens_per_step = 0;  // rows of one step; decode rows first, prompt chunks in what is left (at least one row)
  int64_t num_micro_batches = 1;  // plans that may be in flight; decode rows are spread evenly over them
  GroupChoice group_choice = GroupChoice::kTotalTokens;
  bool finds_prefixes = true;
  bool indexes_generated = false;  // only where all tokens are computed in one form
  int64_t aging_ms = 10000;        // one unit of priority is worth so much waiting
  int64_t promised_tokens = 1024;  // of an answer, for which room is counted ahead at admission
  int64_t scored_rows = 128;       // rows of a chunk whose logits are all wanted
};

struct SequenceRequest {
  uint64_t id = 0;
  std::vector<int32_t> prompt_ids = {};  // not empty
  int64_t max_new_tokens = 0;            // at least 1
  int64_t priority = 0;                  // higher goes first
  int64_t arrival_ms = 0;
  int64_t deadline_ms = std::numeric_limits<int64_t>::max();
  std::string cache_salt = {};           // pages are shared only among sequences with the same
  int64_t first_scored = -1;             // first prompt position whose logits are wanted; -1: only the last
  std::optional<uint64_t> fork_of = {};  // a sequence with the same prompt whose pages this one may share
};

// What has happened since the start.
struct SchedulerCounters {
  int64_t preemptions = 0;  // sequences that had to wait after they had begun
  int64_t replays = 0;      // of them, those computed again because host memory was full
  int64_t pages_to_host = 0;
  int64_t pages_to_device = 0;
  int64_t pages_copied = 0;   // for forks
  int64_t cached_tokens = 0;  // prompt tokens found in the index
};

struct GroupLoad {
  int64_t num_running = 0;
  int64_t num_paused = 0;
  int64_t pages_used = 0;
  int64_t pages_cached = 0;  // held by the index only
  int64_t pages_free = 0;
  int64_t pages_evicted = 0;  // since the start
};

class Scheduler {
 public:
  Scheduler(const SchedulerLimits& limits, const CacheShape& shape);

  // Queues a sequence. It must fit a pool when it is alone (programmer's error otherwise: the engine checks at the
  // door).
  void add(SequenceRequest request);

  // Admits and resumes what fits now. plan_step does it too; called while steps run, it takes this off the time between
  // steps.
  void admit();

  // The next step, or nullopt when nothing can run now. A sequence that was planned with wants_token is left out until
  // it has got its token by append_token. Steps must be executed in the order of planning.
  std::optional<StepPlan> plan_step();

  // The token sampled for a sequence; it is computed in one of the next steps.
  void append_token(uint64_t id, int32_t token);

  // Ends a sequence, queued or running, and frees its pages. False when the id is unknown.
  bool finish(uint64_t id);

  // Sequences whose deadline has come; the caller finishes them.
  std::vector<uint64_t> expired(int64_t now_ms) const;
  // The earliest deadline of all; the largest number when there is none.
  int64_t next_deadline_ms() const;

  // Takes all pages from running sequences; they are computed again when next planned. No step may be in flight.
  void retract_all();

  // Forgets all indexed prompts; false (and nothing is done) when sequences have pages.
  bool flush_index();

  bool is_waiting(uint64_t id) const { return places_.contains(id) && places_.at(id).is_waiting; }
  int64_t num_cached_tokens(uint64_t id) const;  // of the prompt, found at admission
  int64_t num_queued() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }  // paused ones included
  const SchedulerCounters& counters() const { return counters_; }
  GroupLoad load(int32_t group) const;
  int64_t num_groups() const { return static_cast<int64_t>(caches_.size()); }
  // free + used + cached = all in every group; without sequences nothing is used.
  bool is_consistent() const;

 private:
  // Who goes first: earlier arrival, where a unit of priority counts as aging_ms. Does not change while time passes.
  using Key = std::pair<int64_t, uint64_t>;  // order, id
  struct Sequence {
    SequenceRequest request;  // prompt_ids is moved to `tokens`
    int32_t group = 0;
    std::vector<int32_t> tokens = {};  // prompt, then generated
    int64_t num_prompt = 0;
    int64_t num_computed = 0;  // tokens whose keys are in the cache
    int64_t num_cached = 0;
    std::vector<PageId> pages = {};       // on the device, from the beginning
    std::vector<PageId> host_pages = {};  // the rest
    bool is_paused = false;
    bool awaits_token = false;  // planned with wants_token, not appended yet
    uint64_t planned_step = 0;  // last plan that has rows of it, + 1
    bool is_prefilling() const { return num_computed < num_prompt; }
    int64_t num_tokens() const { return static_cast<int64_t>(tokens.size()); }
    bool has_decode_row() const { return !is_prefilling() && num_computed + 1 == num_tokens(); }
    bool is_replaying() const { return !is_prefilling() && num_computed + 1 < num_tokens(); }
  };
  struct Place {
    Key key;
    bool is_waiting = true;
  };
  using Sequences = std::map<Key, Sequence>;

  GroupCache& cache_of(const Sequence& sequence) { return *caches_[static_cast<size_t>(sequence.group)]; }
  Sequence* find_running(uint64_t id);
  int64_t num_active_in(int32_t group) const;
  int64_t num_admitted_in(int32_t group) const;
  int64_t promised_pages(const Sequence& sequence) const;
  int64_t promised_pages_in(int32_t group) const;
  std::span<const int32_t> shareable_tokens(const Sequence& sequence) const;
  int64_t reclaimable_pages(const Sequence& sequence, int32_t group, const Key& key) const;
  bool is_displaced_by(const Sequences::value_type& entry, const Sequence& sequence, const Key& key) const;
  bool can_admit(const Sequence& sequence, int32_t group, const Key& key);
  bool make_room(const Sequence& sequence, int32_t group, const Key& key, int64_t num_pages);
  std::optional<int32_t> choose_group(const Sequence& sequence, const Key& key, const std::vector<bool>& is_held);
  bool must_wait_for_fork(const SequenceRequest& request) const;
  bool admit_waiting(Sequences::iterator waiting, const std::vector<bool>& is_held);
  void take_prompt_pages(const Key& key, Sequence& sequence);
  bool share_fork(Sequence& sequence);
  bool resume(const Key& key, Sequence& sequence);
  std::optional<std::vector<PageId>> take_pages(int32_t group, int64_t count, const Key& key);
  bool free_one_page(int32_t group, const Key& key);
  void move_last_page_to_host(Sequence& victim);
  void drop_pages(Sequence& victim);
  void pause(Sequence& sequence);
  std::map<uint64_t, int64_t> allot_prompt_rows(int32_t group, int64_t budget) const;
  void plan_group(int32_t group, StepPlan& plan);
  void plan_sequence(Sequence& sequence, int64_t num_tokens, StepPlan& plan);
  void index_planned(const StepPlan& plan);

  SchedulerLimits limits_;
  std::vector<std::unique_ptr<GroupCache>> caches_;  // [num groups]
  int32_t last_group_ = -1;                          // that got a sequence
  Sequences waiting_;
  Sequences running_;
  std::unordered_map<uint64_t, Place> places_;
  std::vector<PageMove> moves_;  // for the next plan
  uint64_t next_step_ = 0;
  SchedulerCounters counters_;
};

}  // namespace gimbal
