#include "scheduler/scheduler.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gimbal {
namespace {

CacheShape pages(int64_t num_pages, int64_t page_size, int64_t num_host_pages = 0, int64_t num_groups = 1) {
  return {.num_groups = num_groups, .num_pages = num_pages, .num_host_pages = num_host_pages, .page_size = page_size};
}

std::vector<int32_t> tokens_from(int32_t first, size_t count) {
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = first + static_cast<int32_t>(i);
  return tokens;
}

TEST(Scheduler, CutsAPromptIntoChunksAndThenDecodes) {
  Scheduler scheduler({.max_running = 2, .tokens_per_step = 3}, pages(8, 4));
  scheduler.add({.id = 7, .prompt_ids = {1, 2, 3, 4, 5}, .max_new_tokens = 2});
  auto plan = scheduler.plan_step();
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->sequences.size(), 1u);
  EXPECT_THAT(plan->sequences[0].token_ids, testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(plan->sequences[0].logit_rows, LogitRows::kNone);
  EXPECT_FALSE(plan->sequences[0].wants_token);
  EXPECT_TRUE(plan->sequences[0].is_prefill);
  EXPECT_EQ(plan->sequences[0].pages.size(), 2u);
  plan = scheduler.plan_step();
  EXPECT_THAT(plan->sequences[0].token_ids, testing::ElementsAre(4, 5));
  EXPECT_EQ(plan->sequences[0].first_position, 3);
  EXPECT_EQ(plan->sequences[0].logit_rows, LogitRows::kLast);
  EXPECT_TRUE(plan->sequences[0].wants_token);
  scheduler.append_token(7, 99);
  plan = scheduler.plan_step();
  EXPECT_THAT(plan->sequences[0].token_ids, testing::ElementsAre(99));
  EXPECT_EQ(plan->sequences[0].first_position, 5);
  EXPECT_FALSE(plan->sequences[0].is_prefill);
  EXPECT_EQ(plan->step, 2u);
  EXPECT_TRUE(scheduler.finish(7));
  EXPECT_FALSE(scheduler.finish(7));
  EXPECT_EQ(scheduler.plan_step(), std::nullopt);
  EXPECT_TRUE(scheduler.is_consistent());
}

TEST(Scheduler, ARequestThatDoesNotFitHoldsThoseBehindIt) {
  Scheduler scheduler({.max_running = 4, .tokens_per_step = 64}, pages(4, 4));
  scheduler.add({.id = 1, .prompt_ids = tokens_from(0, 8), .max_new_tokens = 1});    // 2 pages
  scheduler.add({.id = 2, .prompt_ids = tokens_from(20, 12), .max_new_tokens = 1});  // 3 pages
  scheduler.add({.id = 3, .prompt_ids = tokens_from(40, 2), .max_new_tokens = 1});   // 1 page
  const auto plan = scheduler.plan_step();
  ASSERT_EQ(plan->sequences.size(), 1u);
  EXPECT_EQ(plan->sequences[0].sequence_id, 1u);
  EXPECT_EQ(scheduler.num_queued(), 2);
  scheduler.finish(1);
  EXPECT_EQ(scheduler.plan_step()->sequences.size(), 1u);
}

TEST(Scheduler, PromptsGoOnBesideAFullSetOfDecodes) {
  Scheduler scheduler({.max_running = 3, .tokens_per_step = 2}, pages(16, 4));
  for (uint64_t id = 1; id <= 2; ++id) scheduler.add({.id = id, .prompt_ids = {1}, .max_new_tokens = 9});
  ASSERT_TRUE(scheduler.plan_step().has_value());
  scheduler.append_token(1, 5);
  scheduler.append_token(2, 5);
  scheduler.add({.id = 3, .prompt_ids = {1, 2}, .max_new_tokens = 1});
  const auto plan = scheduler.plan_step();
  ASSERT_EQ(plan->sequences.size(), 3u);
  EXPECT_EQ(plan->sequences[2].sequence_id, 3u);
  EXPECT_EQ(plan->sequences[2].token_ids.size(), 1u);
}

TEST(Scheduler, AShortPromptPassesALongOneAndBothGoOn) {
  Scheduler scheduler({.max_running = 3, .tokens_per_step = 10}, pages(64, 4));
  scheduler.add({.id = 1, .prompt_ids = tokens_from(0, 100), .max_new_tokens = 1});
  scheduler.add({.id = 2, .prompt_ids = tokens_from(500, 4), .max_new_tokens = 1, .arrival_ms = 1});
  const auto plan = scheduler.plan_step();
  ASSERT_EQ(plan->sequences.size(), 2u);
  EXPECT_EQ(plan->sequences[0].token_ids.size(), 6u);
  EXPECT_EQ(plan->sequences[1].token_ids.size(), 4u);
  EXPECT_TRUE(plan->sequences[1].wants_token);
}

TEST(Scheduler, PriorityGoesFirstUntilOthersHaveWaitedLongEnough) {
  const SchedulerLimits limits{.max_running = 1, .tokens_per_step = 64, .aging_ms = 1000};
  Scheduler scheduler(limits, pages(16, 4));
  scheduler.add({.id = 1, .prompt_ids = {1}, .max_new_tokens = 1, .priority = 0, .arrival_ms = 0});
  scheduler.add({.id = 2, .prompt_ids = {1}, .max_new_tokens = 1, .priority = 5, .arrival_ms = 100});
  scheduler.add({.id = 3, .prompt_ids = {1}, .max_new_tokens = 1, .priority = 5, .arrival_ms = 6000});
  std::vector<uint64_t> order;
  while (auto plan = scheduler.plan_step()) {
    order.push_back(plan->sequences[0].sequence_id);
    scheduler.finish(order.back());
  }
  EXPECT_THAT(order, testing::ElementsAre(2, 1, 3));
}

TEST(Scheduler, AHigherPriorityPausesARunningSequenceWhichGoesOnLater) {
  Scheduler scheduler({.max_running = 1, .tokens_per_step = 64}, pages(16, 4, 16));
  scheduler.add({.id = 1, .prompt_ids = {1, 2}, .max_new_tokens = 5});
  ASSERT_TRUE(scheduler.plan_step().has_value());
  scheduler.append_token(1, 9);
  scheduler.add({.id = 2, .prompt_ids = {3}, .max_new_tokens = 1, .priority = 1, .arrival_ms = 10});
  auto plan = scheduler.plan_step();
  ASSERT_EQ(plan->sequences.size(), 1u);
  EXPECT_EQ(plan->sequences[0].sequence_id, 2u);
  EXPECT_EQ(scheduler.counters().preemptions, 1);
  EXPECT_EQ(scheduler.load(0).num_paused, 1);
  scheduler.finish(2);
  plan = scheduler.plan_step();
  EXPECT_EQ(plan->sequences[0].sequence_id, 1u);
  EXPECT_THAT(plan->sequences[0].token_ids, testing::ElementsAre(9));
}

TEST(Scheduler, KeepsOneDisjointPlanPerStageInFlight) {
  Scheduler scheduler({.max_running = 8, .tokens_per_step = 64, .num_micro_batches = 4}, pages(64, 4));
  for (uint64_t id = 1; id <= 8; ++id) scheduler.add({.id = id, .prompt_ids = {1, 2}, .max_new_tokens = 9});
  ASSERT_EQ(scheduler.plan_step()->sequences.size(), 8u);  // the prompts
  EXPECT_EQ(scheduler.plan_step(), std::nullopt);          // all wait for their tokens
  for (uint64_t id = 1; id <= 8; ++id) scheduler.append_token(id, 7);
  std::map<uint64_t, int> planned;
  for (int micro_batch = 0; micro_batch < 4; ++micro_batch) {
    const auto plan = scheduler.plan_step();
    ASSERT_TRUE(plan.has_value());
    EXPECT_EQ(plan->sequences.size(), 2u);
    for (const PlannedSequence& sequence : plan->sequences) ++planned[sequence.sequence_id];
  }
  EXPECT_EQ(planned.size(), 8u);
  EXPECT_EQ(scheduler.plan_step(), std::nullopt);
  scheduler.append_token(3, 7);
  const auto plan = scheduler.plan_step();
  ASSERT_EQ(plan->sequences.size(), 1u);
  EXPECT_EQ(plan->sequences[0].sequence_id, 3u);
}

TEST(Scheduler, ALongPromptMayHaveSeveralChunksInFlight) {
  Scheduler scheduler({.max_running = 8, .tokens_per_step = 2, .num_micro_batches = 3}, pages(64, 4));
  scheduler.add({.id = 1, .prompt_ids = {1, 2, 3, 4, 5}, .max_new_tokens = 1});
  EXPECT_EQ(scheduler.plan_step()->sequences[0].first_position, 0);
  EXPECT_EQ(scheduler.plan_step()->sequences[0].first_position, 2);
  const auto last = scheduler.plan_step();
  EXPECT_EQ(last->sequences[0].first_position, 4);
  EXPECT_EQ(last->sequences[0].logit_rows, LogitRows::kLast);
  EXPECT_EQ(scheduler.plan_step(), std::nullopt);
}

TEST(Scheduler, SpreadsSequencesOverGroups) {
  for (const GroupChoice choice : {GroupChoice::kTotalTokens, GroupChoice::kTotalRequests, GroupChoice::kRoundRobin}) {
    Scheduler scheduler({.max_running = 2, .tokens_per_step = 64, .group_choice = choice}, pages(8, 4, 0, 3));
    for (uint64_t id = 1; id <= 7; ++id) scheduler.add({.id = id, .prompt_ids = {1}, .max_new_tokens = 4});
    const auto plan = scheduler.plan_step();
    EXPECT_THAT(plan->group_rows(3), testing::ElementsAre(2, 2, 2));
    EXPECT_EQ(scheduler.num_queued(), 1);
    for (uint64_t id = 1; id <= 7; ++id) EXPECT_TRUE(scheduler.finish(id));
    EXPECT_TRUE(scheduler.is_consistent());
  }
}

TEST(Scheduler, GoesToTheGroupThatKnowsThePrompt) {
  Scheduler scheduler({.max_running = 4, .tokens_per_step = 64}, pages(32, 4, 0, 2));
  scheduler.add({.id = 1, .prompt_ids = {9}, .max_new_tokens = 1});
  scheduler.add({.id = 2, .prompt_ids = tokens_from(0, 20), .max_new_tokens = 1});
  ASSERT_TRUE(scheduler.plan_step().has_value());
  scheduler.finish(1);
  scheduler.finish(2);
  scheduler.add({.id = 3, .prompt_ids = tokens_from(0, 21), .max_new_tokens = 1});
  const auto plan = scheduler.plan_step();
  EXPECT_EQ(plan->sequences[0].dp_group, 1);
  EXPECT_EQ(plan->sequences[0].first_position, 20);
  EXPECT_EQ(scheduler.num_cached_tokens(3), 20);
}

TEST(Scheduler, AFlushForgetsPromptsOnlyWhenNothingRuns) {
  Scheduler scheduler({.max_running = 4, .tokens_per_step = 64}, pages(32, 4));
  scheduler.add({.id = 1, .prompt_ids = tokens_from(0, 9), .max_new_tokens = 1});
  ASSERT_TRUE(scheduler.plan_step().has_value());
  EXPECT_FALSE(scheduler.flush_index());
  scheduler.finish(1);
  EXPECT_EQ(scheduler.load(0).pages_cached, 2);
  EXPECT_TRUE(scheduler.flush_index());
  EXPECT_EQ(scheduler.load(0).pages_free, 32);
}

TEST(Scheduler, ReportsWhoseDeadlineHasCome) {
  Scheduler scheduler({.max_running = 1, .tokens_per_step = 64}, pages(8, 4));
  scheduler.add({.id = 1, .prompt_ids = {1}, .max_new_tokens = 4, .deadline_ms = 70});
  scheduler.add({.id = 2, .prompt_ids = {1}, .max_new_tokens = 4, .arrival_ms = 1, .deadline_ms = 50});
  ASSERT_TRUE(scheduler.plan_step().has_value());
  EXPECT_EQ(scheduler.next_deadline_ms(), 50);
  EXPECT_THAT(scheduler.expired(49), testing::IsEmpty());
  EXPECT_THAT(scheduler.expired(60), testing::ElementsAre(2));
  EXPECT_THAT(scheduler.expired(70), testing::UnorderedElementsAre(1, 2));
}

TEST(Scheduler, AllLogitsOfAScoredPromptAreWantedAndNoneComeFromTheIndex) {
  Scheduler scheduler({.max_running = 4, .tokens_per_step = 64, .scored_rows = 6}, pages(32, 4));
  scheduler.add({.id = 1, .prompt_ids = tokens_from(0, 20), .max_new_tokens = 1});
  ASSERT_TRUE(scheduler.plan_step().has_value());
  scheduler.finish(1);
  scheduler.add({.id = 2, .prompt_ids = tokens_from(0, 20), .max_new_tokens = 1, .first_scored = 9});
  auto plan = scheduler.plan_step();
  EXPECT_EQ(plan->sequences[0].first_position, 8);
  EXPECT_EQ(plan->sequences[0].token_ids.size(), 6u);
  EXPECT_EQ(plan->sequences[0].logit_rows, LogitRows::kAll);
  plan = scheduler.plan_step();
  EXPECT_EQ(plan->sequences[0].token_ids.size(), 6u);
  EXPECT_EQ(plan->sequences[0].logit_rows, LogitRows::kAll);
  EXPECT_TRUE(plan->sequences[0].wants_token);
}

// Plays the ranks: keeps what every page holds, carries out moves, and checks that a row finds all earlier tokens of
// its sequence, each computed in the form in which it was computed first.
class PageMemory {
 public:
  explicit PageMemory(const CacheShape& shape)
      : shape_(shape),
        device_(static_cast<size_t>(shape.num_groups * shape.num_pages), Page(static_cast<size_t>(shape.page_size))),
        host_(static_cast<size_t>(shape.num_groups * shape.num_host_pages),
              Page(static_cast<size_t>(shape.page_size))) {}

  void execute(const StepPlan& plan, const std::map<uint64_t, std::vector<int32_t>>& expected) {
    for (const PageMove& move : plan.moves) {
      Page& device_from = device(move.dp_group, move.from);
      if (move.kind == PageMove::Kind::kCopy) device(move.dp_group, move.to) = device_from;
      if (move.kind == PageMove::Kind::kToHost) host(move.dp_group, move.to) = device_from;
      if (move.kind == PageMove::Kind::kToDevice) device(move.dp_group, move.to) = host(move.dp_group, move.from);
    }
    for (const PlannedSequence& planned : plan.sequences) {
      for (size_t i = 0; i < planned.token_ids.size(); ++i)
        at(planned, planned.first_position + static_cast<int64_t>(i)) = {planned.token_ids[i], planned.is_prefill};
    }
    for (const PlannedSequence& planned : plan.sequences) {
      const std::vector<int32_t>& tokens = expected.at(planned.sequence_id);
      const int64_t end = planned.first_position + static_cast<int64_t>(planned.token_ids.size());
      for (int64_t position = 0; position < end; ++position)
        ASSERT_EQ(at(planned, position).first, tokens[static_cast<size_t>(position)])
            << "sequence " << planned.sequence_id << " position " << position << " step " << plan.step;
    }
  }

  // Every position before `num_prompt` computed as prompt, the others as decode rows.
  bool has_forms(const PlannedSequence& planned, int64_t num_prompt) {
    const int64_t end = planned.first_position + static_cast<int64_t>(planned.token_ids.size());
    for (int64_t position = 0; position < end; ++position) {
      if (at(planned, position).second != (position < num_prompt)) return false;
    }
    return true;
  }

 private:
  using Page = std::vector<std::pair<int32_t, bool>>;  // token, computed as prompt
  Page& device(int32_t group, PageId page) {
    return device_[static_cast<size_t>(group * shape_.num_pages + (page % shape_.num_pages))];
  }
  Page& host(int32_t group, PageId page) { return host_[static_cast<size_t>(group * shape_.num_host_pages + page)]; }
  std::pair<int32_t, bool>& at(const PlannedSequence& planned, int64_t position) {
    const PageId page = planned.pages[static_cast<size_t>(position / shape_.page_size)];
    return device(planned.dp_group, page)[static_cast<size_t>(position % shape_.page_size)];
  }

  CacheShape shape_;
  std::vector<Page> device_;
  std::vector<Page> host_;
};

struct Load {
  unsigned seed;
  SchedulerLimits limits;
  CacheShape shape;
  int num_requests;
};

struct Outcome {
  int64_t num_finished = 0;
  int64_t num_aborted = 0;
  SchedulerCounters counters;
  uint64_t plan_hash = 0;
  int64_t longest_wait = 0;  // steps from arrival to the first token, in units of those ahead at arrival
};

// Random arrivals, lengths, shared beginnings, priorities, forks and aborts, with several plans in flight.
class RandomLoad {
 public:
  explicit RandomLoad(const Load& load)
      : load_(load), random_(load.seed), scheduler_(load.limits, load.shape), memory_(load.shape) {}

  void run() {
    while (num_started_ < load_.num_requests || !left_.empty()) {
      while (num_started_ < load_.num_requests && left_.size() < 24 && random_() % 2 == 0) start_one();
      if (random_() % 60 == 0 && !left_.empty()) abort_one();
      if (random_() % 4 == 0) scheduler_.admit();
      plan_and_execute();
      if (testing::Test::HasFatalFailure()) return;
      ++step_;
      ASSERT_LT(step_, 4000000) << "no progress";
    }
    ASSERT_TRUE(scheduler_.is_consistent());
    EXPECT_EQ(scheduler_.num_running() + scheduler_.num_queued(), 0);
    outcome_.counters = scheduler_.counters();
  }
  const Outcome& outcome() const { return outcome_; }

 private:
  int64_t capacity() const { return load_.shape.num_pages * load_.shape.page_size; }

  void start_one() {
    const uint64_t id = next_id_++;
    SequenceRequest request{.id = id, .prompt_ids = {}};
    request.prompt_ids.resize(1 + random_() % static_cast<uint64_t>(capacity() / 2));
    const auto family = static_cast<int32_t>(random_() % 3);
    for (size_t i = 0; i < request.prompt_ids.size(); ++i)
      request.prompt_ids[i] = i < 30 ? family * 100 + static_cast<int32_t>(i) : static_cast<int32_t>(random_() % 1000);
    const int64_t room = capacity() - static_cast<int64_t>(request.prompt_ids.size());
    request.max_new_tokens = 1 + static_cast<int64_t>(random_()) % std::min<int64_t>(room, 40);
    request.priority = static_cast<int64_t>(random_() % 3);
    request.arrival_ms = step_ * 10;
    if (random_() % 5 == 0) request.cache_salt = "other";
    if (random_() % 7 == 0) request.first_scored = static_cast<int64_t>(random_() % request.prompt_ids.size());
    const int num_forks = random_() % 6 == 0 ? 1 + static_cast<int>(random_() % 3) : 0;
    expected_[id] = request.prompt_ids;
    num_prompt_[id] = static_cast<int64_t>(request.prompt_ids.size());
    left_[id] = request.max_new_tokens;
    ++num_started_;
    for (int fork = 0; fork < num_forks; ++fork) {
      SequenceRequest copy = request;
      copy.id = next_id_++;
      copy.fork_of = id;
      copy.first_scored = -1;
      expected_[copy.id] = copy.prompt_ids;
      num_prompt_[copy.id] = num_prompt_[id];
      left_[copy.id] = copy.max_new_tokens;
      ++num_started_;
      scheduler_.add(std::move(copy));
    }
    scheduler_.add(std::move(request));
  }

  void abort_one() {
    const uint64_t id = std::next(left_.begin(), static_cast<std::ptrdiff_t>(random_() % left_.size()))->first;
    ASSERT_TRUE(scheduler_.finish(id));
    left_.erase(id);
    ++outcome_.num_aborted;
  }

  void plan_and_execute() {
    auto plan = scheduler_.plan_step();
    if (plan) {
      check(*plan);
      memory_.execute(*plan, expected_);
      for (const PlannedSequence& planned : plan->sequences)
        ASSERT_TRUE(memory_.has_forms(planned, num_prompt_.at(planned.sequence_id)));
      in_flight_.push_back(std::move(*plan));
    } else if (in_flight_.empty()) {
      ASSERT_TRUE(left_.empty()) << "nothing is planned though " << left_.size() << " sequences are left";
    }
    const bool is_full = static_cast<int64_t>(in_flight_.size()) >= load_.limits.num_micro_batches;
    if (!in_flight_.empty() && (is_full || !plan)) {
      deliver(in_flight_.front());
      in_flight_.pop_front();
    }
    ASSERT_TRUE(scheduler_.is_consistent());
  }

  void check(const StepPlan& plan) {
    std::set<uint64_t> seen;
    for (const PlannedSequence& planned : plan.sequences) {
      ASSERT_TRUE(left_.contains(planned.sequence_id));
      ASSERT_TRUE(seen.insert(planned.sequence_id).second);
      ASSERT_FALSE(waits_.contains(planned.sequence_id)) << "planned while its token is awaited";
      if (planned.wants_token) waits_.insert(planned.sequence_id);
      outcome_.plan_hash = outcome_.plan_hash * 1000003 + planned.sequence_id * 31 + planned.token_ids.size();
    }
    for (const int64_t rows : plan.group_rows(load_.shape.num_groups))
      ASSERT_LE(rows, load_.limits.tokens_per_step + load_.limits.max_running);
  }

  void deliver(const StepPlan& plan) {
    for (const PlannedSequence& planned : plan.sequences) {
      if (!planned.wants_token) continue;
      const uint64_t id = planned.sequence_id;
      waits_.erase(id);
      if (!left_.contains(id)) continue;  // aborted meanwhile
      ASSERT_EQ(planned.first_position + static_cast<int64_t>(planned.token_ids.size()),
                static_cast<int64_t>(expected_[id].size()));
      if (--left_[id] == 0) {
        ASSERT_TRUE(scheduler_.finish(id));
        left_.erase(id);
        ++outcome_.num_finished;
      } else {
        expected_[id].push_back(static_cast<int32_t>(random_() % 1000));
        scheduler_.append_token(id, expected_[id].back());
      }
    }
  }

  Load load_;
  std::mt19937 random_;
  Scheduler scheduler_;
  PageMemory memory_;
  std::map<uint64_t, std::vector<int32_t>> expected_;  // prompt and tokens so far
  std::map<uint64_t, int64_t> num_prompt_;
  std::map<uint64_t, int64_t> left_;  // tokens, of those that are not done
  std::set<uint64_t> waits_;
  std::deque<StepPlan> in_flight_;
  Outcome outcome_;
  uint64_t next_id_ = 1;
  int num_started_ = 0;
  int64_t step_ = 0;
};

TEST(SchedulerProperty, NothingIsLostStarvedOrComputedFromWrongPages) {
  struct Variant {
    const char* name;
    Load load;
  };
  const std::vector<Variant> variants = {
      {"host memory", {1, {.max_running = 6, .tokens_per_step = 11, .promised_tokens = 4}, pages(32, 4, 64), 20000}},
      {"no host memory", {2, {.max_running = 6, .tokens_per_step = 11, .promised_tokens = 4}, pages(32, 4), 20000}},
      {"little host memory",
       {3, {.max_running = 5, .tokens_per_step = 16, .promised_tokens = 1}, pages(24, 4, 7), 20000}},
      {"pipeline",
       {4,
        {.max_running = 8, .tokens_per_step = 16, .num_micro_batches = 4, .promised_tokens = 4},
        pages(40, 4, 20),
        20000}},
      {"groups",
       {5,
        {.max_running = 4, .tokens_per_step = 9, .num_micro_batches = 2, .promised_tokens = 2},
        pages(24, 4, 12, 3),
        20000}},
      {"no prefixes, pages of one token",
       {6, {.max_running = 5, .tokens_per_step = 8, .finds_prefixes = false}, pages(60, 1, 60), 4000}},
  };
  int64_t num_requests = 0;
  for (const Variant& variant : variants) {
    SCOPED_TRACE(testing::Message() << variant.name << ", seed " << variant.load.seed);
    RandomLoad load(variant.load);
    load.run();
    if (HasFatalFailure()) return;
    const Outcome& outcome = load.outcome();
    EXPECT_GE(outcome.num_finished + outcome.num_aborted, variant.load.num_requests);
    num_requests += outcome.num_finished + outcome.num_aborted;
    EXPECT_GT(outcome.counters.preemptions, 0);
    EXPECT_EQ(outcome.counters.pages_to_host > 0, variant.load.shape.num_host_pages > 0);
    EXPECT_EQ(outcome.counters.cached_tokens > 1000, variant.load.limits.finds_prefixes);
  }
  EXPECT_GE(num_requests, 100000);
}

TEST(SchedulerProperty, TheSameCallsGiveTheSamePlans) {
  const Load load{17, {.max_running = 6, .tokens_per_step = 11, .promised_tokens = 4}, pages(32, 4, 16), 2000};
  RandomLoad first(load), second(load);
  first.run();
  second.run();
  EXPECT_EQ(first.outcome().plan_hash, second.outcome().plan_hash);
  EXPECT_EQ(first.outcome().num_finished, second.outcome().num_finished);
}

}  // namespace
}  // namespace gimbal
