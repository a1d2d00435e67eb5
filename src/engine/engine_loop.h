// EngineLoop: the engine's thread. Takes requests from the gateway, runs steps, delivers tokens.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/rank_executor.h"
#include "engine/request_gateway.h"
#include "scheduler/scheduler.h"

namespace gimbal {

struct EngineLoopOptions {
  int64_t max_queued = 256;
  int64_t priority_aging_ms = 10000;
  bool finds_prefixes = true;
  std::chrono::milliseconds soft_watchdog{4000};
};

// Owns the scheduler; uses the executor, which must outlive it. Gateway calls may come from any thread; everything else
// happens on the loop's own thread. An accepted request ends in exactly one finish or error, also when the loop stops
// or a step fails.
//
// While a step is computed the loop delivers the tokens of the one before and admits what has arrived.
class EngineLoop final : public RequestGateway {
 public:
  EngineLoop(RankExecutor& executor, const EngineLoopOptions& options);
  ~EngineLoop() override;

  Status submit(GenerationRequest request, std::function<void(const TokenEvent&)> on_event) override;
  void abort(const std::string& request_id) override;
  void abort_all() override;
  void flush_cache(std::function<void(bool)> on_done) override;
  void pause(PauseMode mode, std::function<void()> on_done) override;
  void continue_generation() override;
  void report(std::function<void(std::vector<RankReport>)> on_done) override;
  EngineState state() const override;

  // Aborts what is in flight and joins the thread. Later submits are refused. May be called twice.
  void stop();
  // Ends every request with the error, from any thread; nothing is taken any more. The loop's thread may be stuck.
  void fail_all(const Error& error);

 private:
  using Clock = std::chrono::steady_clock;
  // Where the events of a request go. Closed by its last event, or by fail_all().
  struct Sink {
    std::function<void(const TokenEvent&)> on_event;
    std::atomic<bool> is_closed = false;
  };
  struct ActiveRequest {
    GenerationRequest request;
    std::shared_ptr<Sink> sink;
    Clock::time_point submitted = Clock::now();
    Clock::time_point first_step = {};
    int64_t num_generated = 0;
    std::map<TokenId, int32_t> counts = {};  // tokens seen; only with penalties
  };
  struct Delivery {
    std::shared_ptr<Sink> sink;
    TokenEvent event;
  };

  Status check_request(const GenerationRequest& request) const;
  void run();
  void take_arrivals(std::unique_lock<std::mutex>& lock);
  void add_request(ActiveRequest arrival);
  void run_commands();
  bool must_hold() const;
  // Submits steps until enough are in flight; false when nothing is left to compute.
  Result<bool> submit_steps();
  Status wait_for_step();
  void sleep_until_needed(std::unique_lock<std::mutex>& lock);
  void plan_sampling(PlannedSequence& planned);
  void plan_scores(PlannedSequence& planned) const;
  void count_step(const StepPlan& plan);
  void take_result(const SequenceResult& result);
  TokenEvent describe(const ActiveRequest& active, const SequenceResult& result) const;
  void end_expired();
  void end_request(uint64_t id, TokenEvent event);
  void abort_active();
  void deliver();
  void publish_state();
  int64_t now_ms() const;
  std::vector<TokenId> end_ids_of(const SamplingOptions& sampling) const;

  RankExecutor& executor_;
  const EngineLoopOptions options_;
  const Clock::time_point start_ = Clock::now();
  std::vector<TokenId> end_token_ids_;  // of the model

  // Only touched by the loop's thread.
  Scheduler scheduler_;
  std::map<uint64_t, ActiveRequest> active_;
  std::map<std::string, uint64_t> ids_;  // request id -> sequence id
  std::vector<Delivery> outbox_;
  std::vector<std::function<void()>> held_commands_;  // run when no step is in flight
  Clock::time_point last_step_end_ = {};
  Clock::time_point step_start_ = {};
  bool had_work_ = false;  // when the last step ended
  bool is_paused_ = false;
  uint64_t next_id_ = 1;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<ActiveRequest> arrivals_;  // guarded by mutex_, as the rest
  std::vector<std::string> aborts_;
  std::vector<std::function<void()>> commands_;
  std::vector<std::weak_ptr<Sink>> sinks_;  // of requests that were accepted
  bool must_abort_all_ = false;
  bool is_stopping_ = false;
  bool has_failed_ = false;
  EngineState state_;
  mutable uint64_t seen_progress_ = 0;
  mutable Clock::time_point last_progress_ = Clock::now();
  std::atomic<uint64_t> num_rounds_ = 0;
  std::thread thread_;
};

}  // namespace gimbal
