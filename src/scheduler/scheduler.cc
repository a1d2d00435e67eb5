#include "scheduler/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace gimbal {
namespace {

// Pages beyond its own that must be there before a sequence comes back, so that it does not leave again at once.
constexpr int64_t kResumeMargin = 4;

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits, const CacheShape& shape) : limits_(limits) {
  GIMBAL_CHECK_GE(limits.max_running, 1);
  GIMBAL_CHECK_GE(limits.tokens_per_step, 1);
  GIMBAL_CHECK_GE(limits.num_micro_batches, 1);
  GIMBAL_CHECK_GE(shape.num_groups, 1);
  GIMBAL_CHECK_GE(shape.num_pages, 1);
  for (int64_t group = 0; group < shape.num_groups; ++group) caches_.push_back(std::make_unique<GroupCache>(shape));
}

void Scheduler::add(SequenceRequest request) {
  const auto num_prompt = static_cast<int64_t>(request.prompt_ids.size());
  GIMBAL_CHECK_GE(num_prompt, 1);
  GIMBAL_CHECK_GE(request.max_new_tokens, 1);
  // The last token sampled is never computed, so its key needs no place.
  const PagePool& pool = caches_.front()->device;
  GIMBAL_CHECK_LE(pool.pages_for(num_prompt + request.max_new_tokens - 1), pool.num_pages());
  const Key key = {request.arrival_ms - request.priority * limits_.aging_ms, request.id};
  places_[request.id] = {.key = key, .is_waiting = true};
  Sequence sequence{.request = std::move(request), .num_prompt = num_prompt};
  sequence.tokens = std::move(sequence.request.prompt_ids);
  waiting_.emplace(key, std::move(sequence));
}

Scheduler::Sequence* Scheduler::find_running(uint64_t id) {
  const auto place = places_.find(id);
  if (place == places_.end() || place->second.is_waiting) return nullptr;
  return &running_.at(place->second.key);
}

int64_t Scheduler::num_active_in(int32_t group) const {
  return std::count_if(running_.begin(), running_.end(),
                       [&](const auto& entry) { return entry.second.group == group && !entry.second.is_paused; });
}

int64_t Scheduler::num_admitted_in(int32_t group) const {
  return std::count_if(running_.begin(), running_.end(),
                       [&](const auto& entry) { return entry.second.group == group; });
}

int64_t Scheduler::promised_pages(const Sequence& sequence) const {
  const int64_t most = sequence.num_prompt + sequence.request.max_new_tokens - 1;
  return caches_.front()->device.pages_for(std::min(most, sequence.num_tokens() + limits_.promised_tokens));
}

int64_t Scheduler::promised_pages_in(int32_t group) const {
  int64_t pages = 0;
  for (const auto& [key, sequence] : running_) pages += sequence.group == group ? promised_pages(sequence) : 0;
  return pages;
}

// The tokens of a prompt that pages of others may stand for: all but the last, and none whose logits are wanted.
std::span<const int32_t> Scheduler::shareable_tokens(const Sequence& sequence) const {
  if (!limits_.finds_prefixes) return {};
  int64_t count = sequence.num_prompt - 1;
  if (sequence.request.first_scored >= 0) count = std::min(count, sequence.request.first_scored);
  return std::span(sequence.tokens).first(static_cast<size_t>(count));
}

bool Scheduler::is_displaced_by(const Sequences::value_type& entry, const Sequence& sequence, const Key& key) const {
  return !entry.second.is_paused && entry.first > key && entry.second.request.priority < sequence.request.priority;
}

// Pages that are there when all that the sequence may displace have left.
int64_t Scheduler::reclaimable_pages(const Sequence& sequence, int32_t group, const Key& key) const {
  int64_t pages = caches_[static_cast<size_t>(group)]->num_available();
  for (const auto& entry : running_) {
    if (entry.second.group == group && is_displaced_by(entry, sequence, key))
      pages += static_cast<int64_t>(entry.second.pages.size());
  }
  return pages;
}

// Whether `num_pages` more can be had in the group, with one more for each sequence that decodes there. Running
// sequences of lower priority are paused when that helps.
bool Scheduler::make_room(const Sequence& sequence, int32_t group, const Key& key, int64_t num_pages) {
  GroupCache& cache = *caches_[static_cast<size_t>(group)];
  while (true) {
    const int64_t num_active = num_active_in(group);
    if (num_active == 0) return true;  // what is left can be taken from those behind in the order
    if (num_active < limits_.max_running && cache.num_available() >= num_pages + num_active) return true;
    if (reclaimable_pages(sequence, group, key) < num_pages + num_active - 1) return false;
    const auto victim = std::find_if(running_.rbegin(), running_.rend(), [&](const auto& entry) {
      return entry.second.group == group && is_displaced_by(entry, sequence, key);
    });
    if (victim == running_.rend()) return false;
    pause(victim->second);
    while (cache.num_available() < num_pages + num_active - 1 && !victim->second.pages.empty())
      move_last_page_to_host(victim->second);
  }
}

bool Scheduler::can_admit(const Sequence& sequence, int32_t group, const Key& key) {
  GroupCache& cache = *caches_[static_cast<size_t>(group)];
  if (num_admitted_in(group) > 0 &&
      promised_pages_in(group) + promised_pages(sequence) > cache.device.num_pages() + cache.host.num_pages())
    return false;
  const auto num_missing = [&] {
    const auto match = cache.index.match_size(sequence.request.cache_salt, shareable_tokens(sequence));
    return cache.device.pages_for(sequence.num_prompt) - match.num_pages + match.num_unused;
  };
  // Pausing others may leave pages of the prompt without users, which then count as taken from those available.
  int64_t num_pages = -1;
  while (num_missing() != num_pages) {
    num_pages = num_missing();
    if (!make_room(sequence, group, key, num_pages)) return false;
  }
  return true;
}

// The best group that takes the sequence now; ties go to the lower number.
std::optional<int32_t> Scheduler::choose_group(const Sequence& sequence, const Key& key,
                                               const std::vector<bool>& is_held) {
  std::vector<std::pair<int64_t, int32_t>> order;  // score, group
  const auto num_groups = static_cast<int32_t>(caches_.size());
  for (int32_t group = 0; group < num_groups; ++group) {
    if (is_held[static_cast<size_t>(group)]) continue;
    const PrefixIndex& index = caches_[static_cast<size_t>(group)]->index;
    int64_t score =
        promised_pages_in(group) - index.match_size(sequence.request.cache_salt, shareable_tokens(sequence)).num_pages;
    if (limits_.group_choice == GroupChoice::kTotalRequests) score = num_admitted_in(group);
    if (limits_.group_choice == GroupChoice::kRoundRobin) score = (group - last_group_ - 1 + num_groups) % num_groups;
    order.emplace_back(score, group);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [score, group] : order) {
    if (can_admit(sequence, group, key)) return group;
  }
  return std::nullopt;
}

// A fork waits while its first sequence still reads the prompt.
bool Scheduler::must_wait_for_fork(const SequenceRequest& request) const {
  if (!request.fork_of) return false;
  const auto place = places_.find(*request.fork_of);
  if (place == places_.end()) return false;
  return place->second.is_waiting || running_.at(place->second.key).is_prefilling();
}

void Scheduler::admit() {
  std::vector<bool> is_held(caches_.size(), false);
  auto paused = running_.begin();
  auto waiting = waiting_.begin();
  bool is_queue_held = false;
  while (true) {
    while (paused != running_.end() && !paused->second.is_paused) ++paused;
    while (waiting != waiting_.end() && must_wait_for_fork(waiting->second.request)) ++waiting;
    const bool has_waiting = waiting != waiting_.end() && !is_queue_held;
    if (paused == running_.end() && !has_waiting) return;
    if (has_waiting && (paused == running_.end() || waiting->first < paused->first)) {
      const auto next = std::next(waiting);
      is_queue_held = !admit_waiting(waiting, is_held);
      waiting = next;
    } else {
      const auto group = static_cast<size_t>(paused->second.group);
      if (!is_held[group]) is_held[group] = !resume(paused->first, paused->second);
      ++paused;
    }
  }
}

bool Scheduler::admit_waiting(Sequences::iterator waiting, const std::vector<bool>& is_held) {
  const Key key = waiting->first;
  Sequence& queued = waiting->second;
  if (share_fork(queued)) {
    last_group_ = queued.group;
  } else {
    const std::optional<int32_t> group = choose_group(queued, key, is_held);
    if (!group) return false;
    queued.group = last_group_ = *group;
    take_prompt_pages(key, queued);
    queued.num_cached = queued.num_computed;
    counters_.cached_tokens += queued.num_cached;
  }
  places_.at(queued.request.id).is_waiting = false;
  running_.emplace(key, std::move(queued));
  waiting_.erase(waiting);
  return true;
}

// Indexed pages of the prompt, and new ones for the rest of the tokens. There is room: the caller has looked.
void Scheduler::take_prompt_pages(const Key& key, Sequence& sequence) {
  GroupCache& cache = cache_of(sequence);
  sequence.pages = cache.index.take_match(sequence.request.cache_salt, shareable_tokens(sequence));
  sequence.num_computed = static_cast<int64_t>(sequence.pages.size()) * cache.device.page_size();
  const int64_t count = cache.device.pages_for(sequence.num_tokens()) - static_cast<int64_t>(sequence.pages.size());
  const auto pages = take_pages(sequence.group, count, key);
  GIMBAL_CHECK(pages.has_value());
  sequence.pages.insert(sequence.pages.end(), pages->begin(), pages->end());
}

// Shares the pages of the first sequence's prompt; the page in which both go on is copied.
bool Scheduler::share_fork(Sequence& sequence) {
  if (!sequence.request.fork_of) return false;
  const Sequence* first = find_running(*sequence.request.fork_of);
  GroupCache& cache = first != nullptr ? *caches_[static_cast<size_t>(first->group)] : *caches_.front();
  const int64_t num_shared_tokens = sequence.num_prompt - 1;
  const int64_t num_shared = num_shared_tokens / cache.device.page_size();
  if (first == nullptr || first->is_prefilling() || !first->host_pages.empty() ||
      static_cast<int64_t>(first->pages.size()) <= num_shared ||
      promised_pages_in(first->group) + promised_pages(sequence) > cache.device.num_pages() + cache.host.num_pages() ||
      num_active_in(first->group) >= limits_.max_running || cache.num_available() < 1 + num_active_in(first->group))
    return false;
  sequence.group = first->group;
  sequence.pages.assign(first->pages.begin(), first->pages.begin() + num_shared);
  for (const PageId page : sequence.pages) cache.device.share(page);
  const PageId own = cache.take(1)->front();
  if (num_shared_tokens % cache.device.page_size() != 0) {
    moves_.push_back({.dp_group = sequence.group,
                      .kind = PageMove::Kind::kCopy,
                      .from = first->pages[static_cast<size_t>(num_shared)],
                      .to = own});
    ++counters_.pages_copied;
  }
  sequence.pages.push_back(own);
  sequence.num_computed = num_shared_tokens;
  return true;
}

bool Scheduler::resume(const Key& key, Sequence& sequence) {
  GroupCache& cache = cache_of(sequence);
  const bool was_dropped = sequence.pages.empty() && sequence.host_pages.empty();
  if (was_dropped && sequence.awaits_token) return false;  // it would be computed twice
  const auto count = static_cast<int64_t>(sequence.host_pages.size());
  const int64_t wanted = was_dropped ? cache.device.pages_for(sequence.num_tokens()) : count + kResumeMargin;
  if (!make_room(sequence, sequence.group, key, wanted)) return false;
  sequence.is_paused = false;
  if (was_dropped) {
    take_prompt_pages(key, sequence);
    return true;
  }
  const auto pages = take_pages(sequence.group, count, key);
  GIMBAL_CHECK(pages.has_value());
  for (size_t i = 0; i < pages->size(); ++i) {
    moves_.push_back({.dp_group = sequence.group,
                      .kind = PageMove::Kind::kToDevice,
                      .from = sequence.host_pages[i],
                      .to = (*pages)[i]});
  }
  counters_.pages_to_device += count;
  cache.host.give_back(sequence.host_pages);
  sequence.host_pages.clear();
  sequence.pages.insert(sequence.pages.end(), pages->begin(), pages->end());
  return true;
}

void Scheduler::pause(Sequence& sequence) {
  if (!sequence.is_paused) ++counters_.preemptions;
  sequence.is_paused = true;
}

void Scheduler::drop_pages(Sequence& victim) {
  GroupCache& cache = cache_of(victim);
  cache.index.release(victim.pages);
  cache.host.give_back(victim.host_pages);
  victim.pages.clear();
  victim.host_pages.clear();
  victim.num_computed = 0;
  ++counters_.replays;
}

void Scheduler::move_last_page_to_host(Sequence& victim) {
  GroupCache& cache = cache_of(victim);
  const auto place = cache.host.take(1);
  if (!place) return drop_pages(victim);
  const PageId page = victim.pages.back();
  moves_.push_back({.dp_group = victim.group, .kind = PageMove::Kind::kToHost, .from = page, .to = place->front()});
  ++counters_.pages_to_host;
  victim.host_pages.insert(victim.host_pages.begin(), place->front());
  victim.pages.pop_back();
  cache.index.release({&page, 1});
}

// Takes a page from the last sequence in the order that is behind `key` and has no rows in the plan being made.
bool Scheduler::free_one_page(int32_t group, const Key& key) {
  const auto victim = std::find_if(running_.rbegin(), running_.rend(), [&](const auto& entry) {
    return entry.second.group == group && !entry.second.pages.empty() && entry.second.planned_step != next_step_ + 1 &&
           entry.first > key;
  });
  if (victim == running_.rend()) return false;
  pause(victim->second);
  move_last_page_to_host(victim->second);
  return true;
}

std::optional<std::vector<PageId>> Scheduler::take_pages(int32_t group, int64_t count, const Key& key) {
  GroupCache& cache = *caches_[static_cast<size_t>(group)];
  while (cache.num_available() < count) {
    if (!free_one_page(group, key)) return std::nullopt;
  }
  return cache.take(count);
}

// Rows for sequences that still read their tokens: the shortest rest gets up to half, then all in order.
std::map<uint64_t, int64_t> Scheduler::allot_prompt_rows(int32_t group, int64_t budget) const {
  std::map<uint64_t, int64_t> rows;
  const auto most = [&](const Sequence& sequence) {
    if (sequence.is_replaying()) return sequence.num_tokens() - 1 - sequence.num_computed;
    const int64_t rest = sequence.num_prompt - sequence.num_computed;
    const bool is_scored = sequence.request.first_scored >= 0;
    return is_scored ? std::min(rest, limits_.scored_rows) : rest;
  };
  const Sequence* shortest = nullptr;
  for (const auto& [key, sequence] : running_) {
    if (sequence.group != group || sequence.is_paused) continue;
    if (!sequence.is_prefilling() && !sequence.is_replaying()) continue;
    rows[sequence.request.id] = 0;
    if (shortest == nullptr || most(sequence) < most(*shortest)) shortest = &sequence;
  }
  if (shortest == nullptr) return rows;
  const auto give = [&](const Sequence& sequence, int64_t limit) {
    int64_t& given = rows.at(sequence.request.id);
    const int64_t more = std::min({most(sequence) - given, limit, budget});
    given += more;
    budget -= more;
  };
  give(*shortest, std::max<int64_t>(budget / 2, 1));
  for (const auto& [key, sequence] : running_) {
    if (rows.contains(sequence.request.id)) give(sequence, budget);
  }
  return rows;
}

void Scheduler::plan_group(int32_t group, StepPlan& plan) {
  int64_t num_decoding = 0;
  int64_t num_ready = 0;
  for (const auto& [key, sequence] : running_) {
    if (sequence.group != group || sequence.is_paused || sequence.is_prefilling() || sequence.is_replaying()) continue;
    ++num_decoding;
    num_ready += sequence.has_decode_row() ? 1 : 0;
  }
  // An even share per micro-batch: taking all that are ready would leave the other stages without work.
  int64_t decode_rows = (num_decoding + limits_.num_micro_batches - 1) / limits_.num_micro_batches;
  // Prompts go on even when decode rows fill the budget: one row a step at least.
  const int64_t budget = std::max<int64_t>(limits_.tokens_per_step - std::min(decode_rows, num_ready), 1);
  const std::map<uint64_t, int64_t> prompt_rows = allot_prompt_rows(group, budget);
  for (auto& [key, sequence] : running_) {
    if (sequence.group != group || sequence.is_paused) continue;
    if (const auto rows = prompt_rows.find(sequence.request.id); rows != prompt_rows.end()) {
      if (rows->second > 0) plan_sequence(sequence, rows->second, plan);
      continue;
    }
    if (!sequence.has_decode_row() || decode_rows == 0) continue;
    const int64_t missing =
        cache_of(sequence).device.pages_for(sequence.num_computed + 1) - static_cast<int64_t>(sequence.pages.size());
    if (missing > 0) {
      const auto pages = take_pages(group, missing, key);
      if (!pages) {
        pause(sequence);
        continue;
      }
      sequence.pages.insert(sequence.pages.end(), pages->begin(), pages->end());
    }
    plan_sequence(sequence, 1, plan);
    --decode_rows;
  }
}

void Scheduler::plan_sequence(Sequence& sequence, int64_t num_tokens, StepPlan& plan) {
  const auto first = sequence.tokens.begin() + sequence.num_computed;
  PlannedSequence planned{.sequence_id = sequence.request.id,
                          .dp_group = sequence.group,
                          .token_ids = {first, first + num_tokens},
                          .first_position = sequence.num_computed,
                          .pages = sequence.pages,
                          .is_prefill = sequence.is_prefilling()};
  sequence.num_computed += num_tokens;
  planned.wants_token = sequence.num_computed == sequence.num_tokens();
  planned.logit_rows = planned.wants_token ? LogitRows::kLast : LogitRows::kNone;
  const int64_t first_scored = sequence.request.first_scored;
  if (planned.is_prefill && first_scored >= 0 && sequence.num_computed > first_scored)
    planned.logit_rows = LogitRows::kAll;
  sequence.awaits_token = planned.wants_token;
  sequence.planned_step = next_step_ + 1;
  plan.sequences.push_back(std::move(planned));
}

// After the whole plan is made: a page that is replaced by an equal one is free for later plans only.
void Scheduler::index_planned(const StepPlan& plan) {
  if (!limits_.finds_prefixes) return;
  for (const PlannedSequence& planned : plan.sequences) {
    if (!planned.is_prefill && !limits_.indexes_generated) continue;
    Sequence& sequence = *find_running(planned.sequence_id);
    const PagePool& pool = cache_of(sequence).device;
    const int64_t before = planned.first_position / pool.page_size();
    if (sequence.num_computed / pool.page_size() == before) continue;
    const int64_t count =
        limits_.indexes_generated ? sequence.num_computed : std::min(sequence.num_computed, sequence.num_prompt);
    cache_of(sequence).index.insert(sequence.request.cache_salt,
                                    std::span(sequence.tokens).first(static_cast<size_t>(count)), sequence.pages);
  }
}

std::optional<StepPlan> Scheduler::plan_step() {
  admit();
  StepPlan plan{.step = next_step_};
  for (int32_t group = 0; group < static_cast<int32_t>(caches_.size()); ++group) plan_group(group, plan);
  if (plan.sequences.empty()) return std::nullopt;
  plan.moves = std::exchange(moves_, {});
  index_planned(plan);
  ++next_step_;
  return plan;
}

void Scheduler::append_token(uint64_t id, int32_t token) {
  Sequence* sequence = find_running(id);
  GIMBAL_CHECK(sequence != nullptr && sequence->awaits_token);
  sequence->awaits_token = false;
  sequence->tokens.push_back(token);
}

bool Scheduler::finish(uint64_t id) {
  const auto place = places_.find(id);
  if (place == places_.end()) return false;
  if (place->second.is_waiting) {
    waiting_.erase(place->second.key);
  } else {
    Sequence& sequence = running_.at(place->second.key);
    cache_of(sequence).index.release(sequence.pages);
    cache_of(sequence).host.give_back(sequence.host_pages);
    running_.erase(place->second.key);
  }
  places_.erase(place);
  return true;
}

std::vector<uint64_t> Scheduler::expired(int64_t now_ms) const {
  std::vector<uint64_t> ids;
  for (const Sequences* sequences : {&waiting_, &running_}) {
    for (const auto& [key, sequence] : *sequences) {
      if (sequence.request.deadline_ms <= now_ms) ids.push_back(sequence.request.id);
    }
  }
  return ids;
}

int64_t Scheduler::next_deadline_ms() const {
  int64_t earliest = std::numeric_limits<int64_t>::max();
  for (const Sequences* sequences : {&waiting_, &running_}) {
    for (const auto& [key, sequence] : *sequences) earliest = std::min(earliest, sequence.request.deadline_ms);
  }
  return earliest;
}

void Scheduler::retract_all() {
  for (auto& [key, sequence] : running_) {
    GIMBAL_CHECK(!sequence.awaits_token);
    pause(sequence);
    drop_pages(sequence);
  }
}

bool Scheduler::flush_index() {
  const bool has_pages = std::any_of(running_.begin(), running_.end(), [](const auto& entry) {
    return !entry.second.pages.empty() || !entry.second.host_pages.empty();
  });
  if (has_pages) return false;
  for (const auto& cache : caches_) cache->index.evict(cache->index.num_pages());
  return true;
}

int64_t Scheduler::num_cached_tokens(uint64_t id) const {
  const auto place = places_.find(id);
  if (place == places_.end() || place->second.is_waiting) return 0;
  return running_.at(place->second.key).num_cached;
}

GroupLoad Scheduler::load(int32_t group) const {
  const GroupCache& cache = *caches_[static_cast<size_t>(group)];
  const int64_t num_active = num_active_in(group);
  return {.num_running = num_active,
          .num_paused = num_admitted_in(group) - num_active,
          .pages_used = cache.num_used(),
          .pages_cached = cache.index.num_unused(),
          .pages_free = cache.device.num_free(),
          .pages_evicted = cache.num_evicted};
}

bool Scheduler::is_consistent() const {
  for (const auto& cache : caches_) {
    if (!cache->is_consistent()) return false;
    if (running_.empty() && (cache->num_used() != 0 || cache->host.num_used() != 0)) return false;
  }
  return true;
}

}  // namespace gimbal
