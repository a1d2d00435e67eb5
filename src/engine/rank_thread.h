// RankThread: executes the steps of rank 0 beside the engine's own thread, so that requests are admitted and answers
// delivered while a step is computed.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/result.h"
#include "engine/model_runner.h"

namespace gimbal {

// The members are called by one thread, the engine's. After an error no step is executed any more.
class RankThread {
 public:
  // `runner` must outlive the object. `on_failure` is called on the rank's thread, once.
  RankThread(ModelRunner& runner, std::function<void(const Error&)> on_failure);
  // Waits for the step that is being computed; drops those behind it.
  ~RankThread();

  void submit(std::shared_ptr<const StepPlan> plan);
  // The oldest result that was not taken; only where rank 0 reports for its group.
  Result<StepResult> wait();
  // What the rank has counted, after all submitted steps.
  Result<RankReport> report();

 private:
  void run();
  std::optional<Error> execute(const StepPlan& plan);

  ModelRunner& runner_;
  const std::function<void(const Error&)> on_failure_;
  std::mutex mutex_;
  std::condition_variable work_;                       // for the rank's thread
  std::condition_variable done_;                       // for the engine's
  std::deque<std::shared_ptr<const StepPlan>> plans_;  // guarded by mutex_, as the rest
  std::deque<StepResult> results_;
  std::optional<Error> failure_;
  bool is_executing_ = false;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace gimbal
