#include "engine/rank_messages.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gimbal {
namespace {

TEST(RankMessages, AStepArrivesAsItWasSent) {
  StepPlan plan{.step = 77, .sequences = {}};
  plan.sequences.push_back({.sequence_id = 5,
                            .dp_group = 3,
                            .token_ids = {1, 2, 3},
                            .first_position = 40,
                            .pages = {9, 0, 7},
                            .is_prefill = true,
                            .logit_rows = LogitRows::kAll,
                            .num_top_logits = 4,
                            .target_ids = {2, 3, -1}});
  plan.sequences.push_back({.sequence_id = uint64_t{1} << 60,
                            .token_ids = {8},
                            .logit_rows = LogitRows::kLast,
                            .sampling = SamplingPlan{.temperature = 0.5f,
                                                     .top_k = 7,
                                                     .top_p = 0.25f,
                                                     .min_p = 0.125f,
                                                     .seed = ~uint64_t{0},
                                                     .position = 12,
                                                     .forbidden_ids = {4, 5}}});
  const std::string message = encode_step(plan);
  EXPECT_EQ(command_of(message), RankCommand::kStep);
  const StepPlan found = decode_step(message);
  ASSERT_EQ(found.step, 77u);
  ASSERT_EQ(found.sequences.size(), 2u);
  EXPECT_EQ(encode_step(found), message);
  EXPECT_EQ(found.sequences[0].dp_group, 3);
  EXPECT_THAT(found.sequences[0].pages, testing::ElementsAre(9, 0, 7));
  EXPECT_THAT(found.sequences[0].target_ids, testing::ElementsAre(2, 3, -1));
  EXPECT_FALSE(found.sequences[0].sampling.has_value());
  EXPECT_EQ(found.sequences[1].sampling->seed, ~uint64_t{0});
  EXPECT_THAT(found.sequences[1].sampling->forbidden_ids, testing::ElementsAre(4, 5));
}

TEST(RankMessages, AResultAndAReportArriveAsTheyWereSent) {
  StepResult result{.step = 3, .sequences = {}};
  result.sequences.push_back({.sequence_id = 4, .is_finite = false});
  result.sequences.push_back({.sequence_id = 6,
                              .token_id = 12,
                              .rows = {{.top = {{7, 1.5f}, {8, -2.0f}}, .log_probability = -0.25},
                                       {.top = {}, .log_probability = std::nan("")}}});
  const StepResult found = decode_result(encode_result(result));
  ASSERT_EQ(found.sequences.size(), 2u);
  EXPECT_FALSE(found.sequences[0].is_finite);
  EXPECT_FALSE(found.sequences[0].token_id.has_value());
  EXPECT_EQ(found.sequences[1].token_id, 12);
  EXPECT_EQ(found.sequences[1].rows[0].top[1].id, 8);
  EXPECT_EQ(found.sequences[1].rows[0].log_probability, -0.25);
  EXPECT_TRUE(std::isnan(found.sequences[1].rows[1].log_probability));

  RankReport report{.expert_load = {{1, 2}, {}, {3}}, .exchange = {.rows_sent = 8}, .comm_bytes = {5, 6}};
  const RankReport same = decode_report(encode_report(report));
  EXPECT_EQ(same.expert_load, report.expert_load);
  EXPECT_EQ(same.exchange.rows_sent, 8u);
  EXPECT_EQ(same.comm_bytes, report.comm_bytes);
}

TEST(RankMessagesDeathTest, ACutMessageIsAProgrammersError) {
  const std::string message = encode_step({.step = 1, .sequences = {{.token_ids = {1, 2, 3}}}});
  EXPECT_DEATH(decode_step(std::string_view(message).substr(0, message.size() - 1)), "check failed");
}

}  // namespace
}  // namespace gimbal
