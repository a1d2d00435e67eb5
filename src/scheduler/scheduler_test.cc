#include "scheduler/scheduler.h"

#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gimbal {
namespace {

TEST(Scheduler, CutsAPromptIntoChunksAndThenDecodes) {
  PagePool pool(8, 4);
  Scheduler scheduler({.max_running = 2, .tokens_per_step = 3}, {&pool, 1});
  scheduler.add({.id = 7, .prompt_ids = {1, 2, 3, 4, 5}, .max_new_tokens = 2});
  auto plan = scheduler.plan_step();
  ASSERT_TRUE(plan.has_value());
  ASSERT_EQ(plan->sequences.size(), 1u);
  EXPECT_THAT(plan->sequences[0].token_ids, testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(plan->sequences[0].logit_rows, LogitRows::kNone);
  EXPECT_TRUE(plan->sequences[0].is_prefill);
  EXPECT_EQ(plan->sequences[0].pages.size(), 2u);  // 5 + 2 - 1 tokens
  plan = scheduler.plan_step();
  EXPECT_THAT(plan->sequences[0].token_ids, testing::ElementsAre(4, 5));
  EXPECT_EQ(plan->sequences[0].first_position, 3);
  EXPECT_EQ(plan->sequences[0].logit_rows, LogitRows::kLast);
  scheduler.append_token(7, 99);
  plan = scheduler.plan_step();
  EXPECT_THAT(plan->sequences[0].token_ids, testing::ElementsAre(99));
  EXPECT_EQ(plan->sequences[0].first_position, 5);
  EXPECT_FALSE(plan->sequences[0].is_prefill);
  EXPECT_EQ(plan->step, 2u);
  EXPECT_TRUE(scheduler.finish(7));
  EXPECT_FALSE(scheduler.finish(7));
  EXPECT_EQ(scheduler.plan_step(), std::nullopt);
  EXPECT_EQ(pool.num_free(), 8);
}

TEST(Scheduler, ARequestThatDoesNotFitHoldsThoseBehindIt) {
  PagePool pool(4, 4);
  Scheduler scheduler({.max_running = 4, .tokens_per_step = 64}, {&pool, 1});
  scheduler.add({.id = 1, .prompt_ids = std::vector<int32_t>(8, 1), .max_new_tokens = 1});   // 2 pages
  scheduler.add({.id = 2, .prompt_ids = std::vector<int32_t>(12, 2), .max_new_tokens = 1});  // 3 pages
  scheduler.add({.id = 3, .prompt_ids = std::vector<int32_t>(2, 3), .max_new_tokens = 1});   // 1 page
  const auto plan = scheduler.plan_step();
  ASSERT_EQ(plan->sequences.size(), 1u);
  EXPECT_EQ(plan->sequences[0].sequence_id, 1u);
  EXPECT_EQ(scheduler.num_queued(), 2);
  scheduler.finish(1);
  EXPECT_EQ(scheduler.plan_step()->sequences.size(), 2u);
}

TEST(Scheduler, PromptsGoOnBesideAFullSetOfDecodes) {
  PagePool pool(16, 4);
  Scheduler scheduler({.max_running = 3, .tokens_per_step = 2}, {&pool, 1});
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

// Random arrivals, lengths and aborts: every token of every sequence is planned exactly once and in order, pages
// balance.
TEST(Scheduler, LosesNothingUnderRandomLoad) {
  const unsigned seed = 71;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  PagePool pool(32, 4);
  Scheduler scheduler({.max_running = 5, .tokens_per_step = 11}, {&pool, 1});
  struct Expected {
    std::vector<int32_t> tokens;
    int64_t num_planned = 0;
    int64_t num_left = 0;
  };
  std::map<uint64_t, Expected> alive;
  uint64_t next_id = 1;
  int64_t num_finished = 0;
  for (int round = 0; round < 20000; ++round) {
    if (random() % 3 == 0 && alive.size() < 12) {
      SequenceRequest request{.id = next_id,
                              .prompt_ids = std::vector<int32_t>(1 + random() % 40),
                              .max_new_tokens = static_cast<int64_t>(1 + random() % 20)};
      for (int32_t& token : request.prompt_ids) token = static_cast<int32_t>(random() % 1000);
      alive[next_id++] = {request.prompt_ids, 0, request.max_new_tokens};
      scheduler.add(std::move(request));
    }
    if (random() % 50 == 0 && !alive.empty()) {
      ASSERT_TRUE(scheduler.finish(alive.begin()->first));
      alive.erase(alive.begin());
    }
    const auto plan = scheduler.plan_step();
    ASSERT_EQ(plan.has_value(), !alive.empty());
    if (!plan) continue;
    ASSERT_LE(plan->num_tokens(), 11 + 1);
    for (const PlannedSequence& planned : plan->sequences) {
      Expected& expected = alive.at(planned.sequence_id);
      ASSERT_EQ(planned.first_position, expected.num_planned);
      for (const int32_t token : planned.token_ids)
        ASSERT_EQ(token, expected.tokens[static_cast<size_t>(expected.num_planned++)]);
      ASSERT_GE(static_cast<int64_t>(planned.pages.size()) * 4, expected.num_planned);
      const bool is_complete = expected.num_planned == static_cast<int64_t>(expected.tokens.size());
      ASSERT_EQ(planned.logit_rows, is_complete ? LogitRows::kLast : LogitRows::kNone);
      if (!is_complete) continue;
      if (--expected.num_left == 0) {
        ASSERT_TRUE(scheduler.finish(planned.sequence_id));
        alive.erase(planned.sequence_id);
        ++num_finished;
      } else {
        expected.tokens.push_back(static_cast<int32_t>(random() % 1000));
        scheduler.append_token(planned.sequence_id, expected.tokens.back());
      }
    }
    ASSERT_TRUE(pool.is_consistent());
  }
  EXPECT_GT(num_finished, 1000);
  while (!alive.empty()) {
    scheduler.finish(alive.begin()->first);
    alive.erase(alive.begin());
  }
  EXPECT_EQ(pool.num_free(), 32);
}

TEST(Scheduler, KeepsOneDisjointPlanPerStageInFlight) {
  PagePool pool(64, 4);
  Scheduler scheduler({.max_running = 8, .tokens_per_step = 64, .num_micro_batches = 4}, {&pool, 1});
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
  PagePool pool(64, 4);
  Scheduler scheduler({.max_running = 8, .tokens_per_step = 2, .num_micro_batches = 3}, {&pool, 1});
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
    std::vector<PagePool> pools(3, PagePool(8, 4));
    Scheduler scheduler({.max_running = 2, .tokens_per_step = 64, .group_choice = choice}, pools);
    for (uint64_t id = 1; id <= 7; ++id) scheduler.add({.id = id, .prompt_ids = {1}, .max_new_tokens = 4});
    const auto plan = scheduler.plan_step();
    EXPECT_THAT(plan->group_rows(3), testing::ElementsAre(2, 2, 2));
    EXPECT_EQ(scheduler.num_queued(), 1);
    for (uint64_t id = 1; id <= 7; ++id) EXPECT_TRUE(scheduler.finish(id));
    for (const PagePool& pool : pools) EXPECT_EQ(pool.num_free(), 8);
  }
}

}  // namespace
}  // namespace gimbal
