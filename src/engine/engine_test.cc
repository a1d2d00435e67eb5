#include "engine/engine.h"

#include <condition_variable>
#include <map>
#include <mutex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/settings_for_test.h"

namespace gimbal {
namespace {

// Collects the events of any number of requests.
class Answers {
 public:
  std::function<void(const TokenEvent&)> sink(const std::string& name) {
    return [this, name](const TokenEvent& event) {
      const std::lock_guard lock(mutex_);
      events_[name].push_back(event);
      if (event.finish || event.error) ++num_ended_;
      changed_.notify_all();
    };
  }
  void wait_for_ends(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_ended_ >= count; });
  }
  void wait_for_tokens(const std::string& name, size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return events_[name].size() >= count; });
  }
  std::vector<TokenId> tokens(const std::string& name) {
    const std::lock_guard lock(mutex_);
    std::vector<TokenId> ids;
    for (const TokenEvent& event : events_[name]) {
      if (event.token_id) ids.push_back(*event.token_id);
    }
    return ids;
  }
  TokenEvent last(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return events_[name].back();
  }
  int num_ended() {
    const std::lock_guard lock(mutex_);
    return num_ended_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<TokenEvent>> events_;
  int num_ended_ = 0;
};

class EngineTest : public testing::Test {
 protected:
  void start(const Settings& settings) {
    auto config = read_model_config(settings.model_path);
    ASSERT_TRUE(config.has_value()) << config.error().message;
    auto engine = Engine::start(settings, *config);
    ASSERT_TRUE(engine.has_value()) << engine.error().message;
    engine_ = std::move(*engine);
  }
  Status submit(const std::string& name, std::vector<TokenId> prompt, SamplingOptions sampling) {
    return engine_->gateway().submit(
        {.request_id = name, .prompt_ids = std::move(prompt), .sampling = std::move(sampling)}, answers_.sink(name));
  }
  static SamplingOptions greedy(int64_t count) {
    return {.temperature = 0.0f, .max_new_tokens = count, .ignore_eos = true, .stop_token_ids = {}};
  }

  Answers answers_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, ManyRequestsTogetherGiveTheirSoloTokens) {
  start(settings_for_test());
  std::vector<std::vector<TokenId>> prompts;
  for (int i = 0; i < 10; ++i) {
    prompts.emplace_back();
    for (int j = 0; j < 3 + 17 * i; ++j) prompts.back().push_back((37 * j + 11 * i + 5) % 3800);
  }
  const auto sampling = [](int i) {
    SamplingOptions options = greedy(20);
    if (i % 2 == 1)
      options = {.temperature = 0.8f,
                 .top_p = 0.9f,
                 .seed = static_cast<uint64_t>(i),
                 .max_new_tokens = 20,
                 .ignore_eos = true,
                 .stop_token_ids = {}};
    return options;
  };
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(submit("solo" + std::to_string(i), prompts[static_cast<size_t>(i)], sampling(i)).has_value());
    answers_.wait_for_ends(i + 1);
  }
  for (int i = 0; i < 10; ++i)
    ASSERT_TRUE(submit("together" + std::to_string(i), prompts[static_cast<size_t>(i)], sampling(i)).has_value());
  answers_.wait_for_ends(20);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(answers_.tokens("solo" + std::to_string(i)), answers_.tokens("together" + std::to_string(i))) << i;
    EXPECT_EQ(answers_.tokens("solo" + std::to_string(i)).size(), 20u);
    EXPECT_EQ(answers_.last("solo" + std::to_string(i)).finish, FinishReason::kLength);
  }
  engine_->stop();
  EXPECT_EQ(engine_->gateway().state().kv_tokens_used, 0);
  EXPECT_EQ(engine_->gateway().state().generated_tokens, 400u);
}

TEST_F(EngineTest, StopIdsEndARequestAndAreMarked) {
  start(settings_for_test());
  ASSERT_TRUE(submit("free", {755, 1190, 220}, greedy(8)).has_value());
  answers_.wait_for_ends(1);
  const std::vector<TokenId> tokens = answers_.tokens("free");
  SamplingOptions options = greedy(8);
  options.stop_token_ids = {tokens[3]};
  ASSERT_TRUE(submit("stopped", {755, 1190, 220}, options).has_value());
  answers_.wait_for_ends(2);
  const TokenEvent last = answers_.last("stopped");
  EXPECT_EQ(last.finish, FinishReason::kStop);
  EXPECT_EQ(last.matched_stop, tokens[3]);
  EXPECT_TRUE(last.is_end_token);
  EXPECT_LE(answers_.tokens("stopped").size(), 4u);
  options.min_new_tokens = 8;
  ASSERT_TRUE(submit("forced", {755, 1190, 220}, options).has_value());
  answers_.wait_for_ends(3);
  EXPECT_EQ(answers_.tokens("forced").size(), 8u);
}

TEST_F(EngineTest, AbortEndsOnlyItsOwnRequest) {
  start(settings_for_test());
  ASSERT_TRUE(submit("long", {1, 2, 3}, greedy(4000)).has_value());
  ASSERT_TRUE(submit("other", {4, 5, 6}, greedy(30)).has_value());
  answers_.wait_for_tokens("long", 2);
  engine_->gateway().abort("nobody");
  engine_->gateway().abort("long");
  answers_.wait_for_ends(2);
  EXPECT_EQ(answers_.last("long").finish, FinishReason::kAbort);
  EXPECT_EQ(answers_.tokens("other").size(), 30u);
}

TEST_F(EngineTest, StopEndsWhatIsInFlightAndRefusesMore) {
  start(settings_for_test());
  ASSERT_TRUE(submit("a", {1, 2, 3}, greedy(4000)).has_value());
  ASSERT_TRUE(submit("b", {1, 2, 3}, greedy(4000)).has_value());
  answers_.wait_for_tokens("a", 1);
  engine_->stop();
  EXPECT_EQ(answers_.num_ended(), 2);
  const Status refused = submit("c", {1}, greedy(1));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().kind, ErrorKind::kUnavailable);
}

TEST_F(EngineTest, ImpossibleRequestsAreRefusedAtTheDoor) {
  Settings settings = settings_for_test();
  settings.context_length = 64;
  start(settings);
  const auto message = [&](std::vector<TokenId> prompt, int64_t max_new_tokens) {
    const Status status = submit("x", std::move(prompt), greedy(max_new_tokens));
    EXPECT_FALSE(status.has_value());
    return status.has_value() ? std::string() : status.error().message;
  };
  EXPECT_THAT(message({}, 1), testing::HasSubstr("empty"));
  EXPECT_THAT(message({1}, 0), testing::HasSubstr("max_tokens is 0"));
  EXPECT_THAT(message({4096}, 1), testing::HasSubstr("4096"));
  EXPECT_THAT(message({-1}, 1), testing::HasSubstr("outside the vocabulary"));
  EXPECT_THAT(message(std::vector<TokenId>(64, 1), 1), testing::HasSubstr("context length is 64"));
  EXPECT_THAT(message(std::vector<TokenId>(60, 1), 5), testing::HasSubstr("at most 4"));
  EXPECT_TRUE(submit("fits", std::vector<TokenId>(60, 1), greedy(4)).has_value());
  answers_.wait_for_ends(1);
}

TEST_F(EngineTest, AFullQueueIsRefused) {
  Settings settings = settings_for_test();
  settings.max_running_requests = 1;
  settings.max_queued_requests = 1;
  start(settings);
  ASSERT_TRUE(submit("running", {1}, greedy(4000)).has_value());
  answers_.wait_for_tokens("running", 1);
  ASSERT_TRUE(submit("queued", {1}, greedy(1)).has_value());
  const Status refused = submit("refused", {1}, greedy(1));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().kind, ErrorKind::kTooManyWaiting);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("--max-queued-requests 1"));
}

TEST_F(EngineTest, AForcedBackendIsTheOneThatRuns) {
  Settings settings = settings_for_test();
  settings.op_backend = "reference";
  settings.attention_backend = "reference";
  settings.moe_runner_backend = "reference";
  start(settings);
  EXPECT_EQ(engine_->description().op_backend, "reference");
  ASSERT_TRUE(submit("reference", {755, 1190, 220, 3842}, greedy(5)).has_value());
  answers_.wait_for_ends(1);
  const auto expected = answers_.tokens("reference");
  engine_.reset();
  start(settings_for_test());
  EXPECT_EQ(engine_->description().moe_runner_backend, "cpu_simd");
  ASSERT_TRUE(submit("fast", {755, 1190, 220, 3842}, greedy(5)).has_value());
  answers_.wait_for_ends(2);
  EXPECT_EQ(answers_.tokens("fast"), expected);
  settings.moe_runner_backend = "triton";
  EXPECT_THAT(Engine::start(settings, *read_model_config(settings.model_path)).error().message,
              testing::HasSubstr("Offered: auto, cpu_simd, reference"));
}

}  // namespace
}  // namespace gimbal
