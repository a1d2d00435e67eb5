#include "engine/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gimbal {
namespace {

class MemoryPlanTest : public testing::Test {
 protected:
  void SetUp() override {
    config_ = *read_model_config(std::filesystem::path(GIMBAL_SOURCE_DIR) / "models/kimi-k2-mini");
    settings_.page_size = 16;
    settings_.mem_fraction_static = 0.8;
    settings_.chunked_prefill_size = 2048;
  }
  Result<MemoryPlan> plan(uint64_t memory_bytes) {
    return plan_memory(
        {.settings = &settings_,
         .config = &config_,
         .layout = &layout_,
         .weight_bytes = uint64_t{24} << 20,
         .num_ranks = layout_.world_size(),
         .machine = {
             .num_cpus = 2, .memory_bytes = memory_bytes, .cpus_from = "affinity", .memory_from = "cgroup limit"}});
  }
  ModelConfig config_;
  Settings settings_;
  ParallelLayout layout_;
};

TEST_F(MemoryPlanTest, TakesWhatAllRunningRequestsCanUse) {
  const auto result = plan(uint64_t{8} << 30);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->context_length, 4096);
  EXPECT_EQ(result->num_pages, 64 * 4096 / 16);
  EXPECT_EQ(result->kv_bytes, uint64_t{64} * 4096 * 8 * 80 * 4);
  EXPECT_TRUE(result->notes.empty());
}

TEST_F(MemoryPlanTest, ShrinksThePoolWhenMemoryIsShortAndSaysSo) {
  const auto result = plan(uint64_t{240} << 20);
  ASSERT_TRUE(result.has_value());
  EXPECT_LT(result->num_pages, 4096);
  EXPECT_GE(result->num_pages, 256);
  EXPECT_LE(result->weight_bytes + result->workspace_bytes + result->kv_bytes, uint64_t{192} << 20);
  ASSERT_EQ(result->notes.size(), 1u);
  EXPECT_THAT(result->notes[0], testing::HasSubstr("limited by memory"));
}

TEST_F(MemoryPlanTest, RefusesWhatCannotFitWithTheSum) {
  const auto result = plan(uint64_t{40} << 20);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().kind, ErrorKind::kInvalidRequest);
  for (const char* part : {"Required: 24.0 MiB weights", "Offered: 32.0 MiB", "cgroup limit", "Missing: "}) {
    EXPECT_THAT(result.error().message, testing::HasSubstr(part));
  }
}

TEST_F(MemoryPlanTest, ADerivedContextIsShortenedWithANote) {
  const auto result = plan(uint64_t{90} << 20);  // room for a part of the 4096 tokens
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_GE(result->context_length, 512);
  EXPECT_LT(result->context_length, 4096);
  EXPECT_THAT(result->notes, testing::Contains(testing::HasSubstr("limited by memory")));
  settings_.max_total_tokens = 3000;
  const auto small_pool = plan(uint64_t{8} << 30);
  ASSERT_TRUE(small_pool.has_value()) << small_pool.error().message;
  EXPECT_EQ(small_pool->context_length, 3008);  // whole pages
  EXPECT_EQ(small_pool->num_pages, 188);
  EXPECT_THAT(small_pool->notes, testing::ElementsAre(testing::HasSubstr(
                                     "3008 tokens instead of the model's 4096, limited by --max-total-tokens")));
}

TEST_F(MemoryPlanTest, ChecksLengthsThatWereAskedFor) {
  settings_.context_length = 5000;
  EXPECT_THAT(plan(uint64_t{8} << 30).error().message, testing::HasSubstr("max_position_embeddings 4096"));
  settings_.context_length = 1000;
  settings_.max_total_tokens = 900;
  EXPECT_THAT(plan(uint64_t{8} << 30).error().message, testing::HasSubstr("--max-total-tokens 900"));
  settings_.max_total_tokens = 1000;
  EXPECT_EQ(plan(uint64_t{8} << 30)->num_pages, 63);
}

TEST_F(MemoryPlanTest, SharesLimitsOverDpGroupsAndCountsEveryRanksPages) {
  layout_ = *parse_layout("pp2ep4");
  settings_.max_running_requests = 10;
  const auto result = plan(uint64_t{16} << 30);
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->max_running, 2);
  EXPECT_THAT(result->notes, testing::Contains(testing::HasSubstr("2 in each of 4 DP groups, 8 in all")));
  EXPECT_EQ(result->tokens_per_step, 512);
  EXPECT_EQ(result->num_pages, 2 * 256);
  EXPECT_EQ(result->kv_bytes, uint64_t{2} * 4096 * 8 * 80 * 4 * 4);  // four groups hold all layers
  EXPECT_EQ(result->low_latency_tokens, 2);                          // auto: pure decode
}

TEST_F(MemoryPlanTest, LowLatencySlotsAreEnoughOrRefused) {
  layout_ = *parse_layout("ep4:low_latency");
  settings_.max_running_requests = 8;
  EXPECT_EQ(plan(uint64_t{16} << 30)->low_latency_tokens, 512 + 2);
  settings_.low_latency_slots = 16;
  const auto refused = plan(uint64_t{16} << 30);
  ASSERT_FALSE(refused.has_value());
  for (const char* part : {"16 slots", "514 tokens", "--deepep-mode auto"})
    EXPECT_THAT(refused.error().message, testing::HasSubstr(part));
  settings_.low_latency_slots = 1000000;
  const auto too_large = plan(uint64_t{4} << 30);
  ASSERT_FALSE(too_large.has_value());
  EXPECT_THAT(too_large.error().message, testing::HasSubstr("low-latency windows of 1000000 slots"));
  layout_ = *parse_layout("ep4:normal");
  EXPECT_EQ(plan(uint64_t{16} << 30)->low_latency_tokens, 0);
}

}  // namespace
}  // namespace gimbal
