#include "base/thread_team.h"

#include "base/check.h"

namespace gimbal {

ThreadTeam::ThreadTeam(int num_threads) {
  GIMBAL_CHECK_GE(num_threads, 1);
  workers_.reserve(static_cast<size_t>(num_threads) - 1);
  for (int worker = 1; worker < num_threads; ++worker) {
    workers_.emplace_back([this, worker] { work(worker); });
  }
}

ThreadTeam::~ThreadTeam() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadTeam::run(int64_t num_tasks, const std::function<void(int64_t, int)>& task) {
  if (workers_.empty() || num_tasks <= 1) {
    for (int64_t index = 0; index < num_tasks; ++index) task(index, 0);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    task_ = &task;
    num_tasks_ = num_tasks;
    next_task_.store(0, std::memory_order_relaxed);
    num_working_ = static_cast<int>(workers_.size());
    ++loop_number_;
  }
  start_.notify_all();
  take_tasks(0);
  std::unique_lock lock(mutex_);
  finish_.wait(lock, [this] { return num_working_ == 0; });
}

void ThreadTeam::take_tasks(int worker) {
  for (int64_t index = next_task_.fetch_add(1); index < num_tasks_; index = next_task_.fetch_add(1)) {
    (*task_)(index, worker);
  }
}

void ThreadTeam::work(int worker) {
  uint64_t last_loop = 0;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return is_stopping_ || loop_number_ != last_loop; });
      if (is_stopping_) return;
      last_loop = loop_number_;
    }
    take_tasks(worker);
    const std::lock_guard lock(mutex_);
    if (--num_working_ == 0) finish_.notify_one();
  }
}

}  // namespace gimbal
