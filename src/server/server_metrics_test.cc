#include "server/server_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gimbal {
namespace {

using testing::HasSubstr;

TEST(ServerMetrics, ShowsStateCountersAndHistograms) {
  ServerMetrics metrics("mini");
  metrics.count_first_token(0.001, 0.02);
  metrics.count_next_token(0.004);
  metrics.count_end({.prompt_tokens = 10, .cached_tokens = 4, .generated_tokens = 2, .seconds = 0.1});
  metrics.count_end({.prompt_tokens = 10, .generated_tokens = 1, .seconds = 0.1, .is_aborted = true});
  metrics.count_response(200);
  EngineState state;
  state.num_running = 3;
  state.num_queued = 2;
  state.page_size = 16;
  state.kv_tokens_total = 1600;
  state.kv_tokens_used = 400;
  state.generated_tokens = 3;
  state.groups = {{.num_running = 2, .num_paused = 1, .pages_used = 25, .pages_cached = 5, .pages_free = 70}};
  std::string text = metrics.text(state, {});
  const std::string labels = "{engine_type=\"unified\",model_name=\"mini\"}";
  EXPECT_THAT(text, HasSubstr("sglang:num_running_reqs" + labels + " 2\n"));
  EXPECT_THAT(text, HasSubstr("sglang:num_queue_reqs" + labels + " 2\n"));
  EXPECT_THAT(text, HasSubstr("sglang:num_paused_reqs" + labels + " 1\n"));
  EXPECT_THAT(text, HasSubstr("sglang:token_usage" + labels + " 0.25\n"));
  EXPECT_THAT(text, HasSubstr("sglang:kv_evictable_tokens" + labels + " 80\n"));
  EXPECT_THAT(text, HasSubstr("sglang:num_requests_total" + labels + " 2\n"));
  EXPECT_THAT(text, HasSubstr("sglang:num_aborted_requests_total" + labels + " 1\n"));
  EXPECT_THAT(text, HasSubstr("sglang:time_to_first_token_seconds_count" + labels + " 1\n"));
  EXPECT_THAT(text, HasSubstr("sglang:uncached_prompt_tokens_histogram_sum" + labels + " 16\n"));
  EXPECT_THAT(text, HasSubstr("status_code=\"200\""));
  state.num_running = 0;
  state.generated_tokens = 7;
  text = metrics.text(state, {});
  EXPECT_THAT(text, HasSubstr("sglang:generation_tokens_total" + labels + " 7\n"));
}

TEST(ServerMetrics, ComponentsComeFromTheRanksReports) {
  ServerMetrics metrics("mini");
  RankReport report;
  report.times = {.steps = 2, .total_s = 1.0, .attention_s = 0.25, .feed_forward_s = 0.5, .sampling_s = 0.125};
  report.comm_seconds.assign(kNumCommVerbs, 0.0);
  report.comm_seconds[static_cast<size_t>(CommVerb::kAllReduce)] = 0.125;
  report.expert_load = {{1, 3}, {1, 3}};
  const std::string text = metrics.text({}, {report});
  EXPECT_THAT(text, testing::ContainsRegex("component_seconds_total.component=.experts.*rank=.0.. 0.375"));
  EXPECT_THAT(text, testing::ContainsRegex("expert_tokens_total.*expert=.1.* 6"));
  EXPECT_THAT(text, testing::ContainsRegex("eplb_balancedness.* 0.66"));
}

}  // namespace
}  // namespace gimbal
