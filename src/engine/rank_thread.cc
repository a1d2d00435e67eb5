#include "engine/rank_thread.h"

#include <exception>
#include <utility>

#include <fmt/format.h>

namespace gimbal {

RankThread::RankThread(ModelRunner& runner, std::function<void(const Error&)> on_failure)
    : runner_(runner), on_failure_(std::move(on_failure)), thread_([this] { run(); }) {}

RankThread::~RankThread() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  work_.notify_all();
  thread_.join();
}

void RankThread::submit(std::shared_ptr<const StepPlan> plan) {
  {
    const std::lock_guard lock(mutex_);
    plans_.push_back(std::move(plan));
  }
  work_.notify_all();
}

Result<StepResult> RankThread::wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return !results_.empty() || failure_; });
  if (results_.empty()) return fail(*failure_);
  StepResult result = std::move(results_.front());
  results_.pop_front();
  return result;
}

Result<RankReport> RankThread::report() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return (plans_.empty() && !is_executing_) || failure_; });
  if (failure_) return fail(*failure_);
  return runner_.report();
}

std::optional<Error> RankThread::execute(const StepPlan& plan) {
  try {
    Result<std::optional<StepResult>> result = runner_.run(plan);
    if (!result) return result.error();
    if (!*result) return std::nullopt;
    const std::lock_guard lock(mutex_);
    results_.push_back(std::move(**result));
    return std::nullopt;
  } catch (const std::exception& exception) {
    return Error::failed(fmt::format("Rank 0 failed: {}.", exception.what()));
  }
}

void RankThread::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return is_stopping_ || !plans_.empty(); });
    if (is_stopping_) return;
    const std::shared_ptr<const StepPlan> plan = plans_.front();
    plans_.pop_front();
    is_executing_ = true;
    lock.unlock();
    const std::optional<Error> error = execute(*plan);
    if (error) on_failure_(*error);
    lock.lock();
    is_executing_ = false;
    failure_ = error;
    done_.notify_all();
    if (error) return;
  }
}

}  // namespace gimbal
