// EngineLoop: the engine's thread. Takes requests from the gateway, runs steps, delivers tokens.
#pragma once

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
#include "kv_cache/page_pool.h"
#include "scheduler/scheduler.h"

namespace gimbal {

// Owns the scheduler and the page pools of the DP groups; uses the executor, which must outlive it, and is its rank 0.
// Gateway calls may come from any thread; everything else happens on the loop's own thread. An accepted request ends in
// exactly one finish or error, also when the loop stops or a step fails.
class EngineLoop final : public RequestGateway {
 public:
  EngineLoop(RankExecutor& executor, int64_t max_queued);
  ~EngineLoop() override;

  Status submit(GenerationRequest request, std::function<void(const TokenEvent&)> on_event) override;
  void abort(const std::string& request_id) override;
  EngineState state() const override;

  // Aborts what is in flight and joins the thread. Later submits are refused. May be called twice.
  void stop();

 private:
  struct ActiveRequest {
    GenerationRequest request;
    std::function<void(const TokenEvent&)> on_event;
    int64_t num_generated = 0;
  };

  Status check_request(const GenerationRequest& request) const;
  void run();
  void take_arrivals(std::unique_lock<std::mutex>& lock);
  // Submits steps until enough are in flight; false when nothing is left to compute.
  Result<bool> submit_steps();
  void plan_sampling(PlannedSequence& planned) const;
  void count_step(const StepPlan& plan);
  void deliver(const SequenceResult& result);
  void end_request(uint64_t id, const TokenEvent& event);
  void fail_all(const Error& error);
  void publish_state();
  std::vector<TokenId> end_ids_of(const SamplingOptions& sampling) const;

  RankExecutor& executor_;
  const int64_t max_queued_;
  std::vector<TokenId> end_token_ids_;  // of the model

  // Only touched by the loop's thread.
  std::vector<PagePool> pools_;  // [num DP groups]
  Scheduler scheduler_;
  std::map<uint64_t, ActiveRequest> active_;
  std::map<std::string, uint64_t> ids_;  // request id -> sequence id

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<ActiveRequest> arrivals_;  // guarded by mutex_
  std::vector<std::string> aborts_;      // guarded by mutex_
  bool is_stopping_ = false;             // guarded by mutex_
  bool has_failed_ = false;              // guarded by mutex_
  EngineState state_;                    // guarded by mutex_
  uint64_t next_id_ = 1;
  std::thread thread_;
};

}  // namespace gimbal
