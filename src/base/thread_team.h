// ThreadTeam: a fixed set of threads that share loops, owned by one rank.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace gimbal {

// The calling thread is worker 0, so a team of one starts no thread. One loop runs at a time; loops must not nest.
// Work is cut into tasks by the caller; which worker runs which task is not fixed, so a task must write only what is
// its own.
class ThreadTeam {
 public:
  explicit ThreadTeam(int num_threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls task(index, worker) once for every index in [0, num_tasks), worker in [0, num_threads), and waits for all.
  // Tasks must not throw.
  void run(int64_t num_tasks, const std::function<void(int64_t index, int worker)>& task);

 private:
  void work(int worker);
  void take_tasks(int worker);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable finish_;
  uint64_t loop_number_ = 0;                                 // guarded by mutex_
  int num_working_ = 0;                                      // guarded by mutex_
  bool is_stopping_ = false;                                 // guarded by mutex_
  const std::function<void(int64_t, int)>* task_ = nullptr;  // set before loop_number_ rises
  int64_t num_tasks_ = 0;
  std::atomic<int64_t> next_task_{0};
};

}  // namespace gimbal
