// InProcessWorld: ranks that are threads of one process. Tensors are read where they are; nothing named is left in the
// system when the process dies.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "comm/comm_state.h"
#include "comm/device_comm.h"
#include "comm/host_comm.h"

namespace gimbal {

class InProcessGroup;

// Where threads sleep until something they look at has changed. A change between the look and the sleep is not missed.
class WaitPoint {
 public:
  uint64_t changes() const { return changes_.load(std::memory_order_acquire); }
  void notify();
  // Returns when changes() is no longer `seen`, or at the deadline.
  void wait(uint64_t seen, std::chrono::steady_clock::time_point deadline);

 private:
  std::atomic<uint64_t> changes_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
};

// Shared by all ranks; thread-safe. Lives at least as long as every communicator made from it (they hold it).
class InProcessWorld : public std::enable_shared_from_this<InProcessWorld> {
 public:
  static std::shared_ptr<InProcessWorld> create(int size, std::chrono::milliseconds timeout);

  int size() const { return static_cast<int>(states_.size()); }
  std::chrono::milliseconds timeout() const { return timeout_; }
  CommState& state(int rank) { return *states_[static_cast<size_t>(rank)]; }

  std::unique_ptr<HostComm> host_comm(int rank);
  // The communicator of `rank` in the group of `world_ranks`; every member must ask for it, in any order, and for the
  // same list the same group is given. `name` keeps groups of the same ranks apart.
  std::unique_ptr<DeviceComm> device_comm(int rank, const std::vector<int>& world_ranks, const std::string& name);

  // The first error of any rank; all waiting calls end with it.
  void raise(const Error& error);
  std::optional<Error> failure() const;
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }

  // Where `rank` waits for messages and signals to itself.
  WaitPoint& rank_point(int rank) { return *rank_points_[static_cast<size_t>(rank)]; }

  // Spins for a moment when every rank can have a processor of its own, then sleeps at `point`, until `is_done`.
  // `is_done` must be thread-safe; whoever makes it true notifies the point. Error: the world's failure, or
  // `on_timeout()` after the deadline, which becomes the world's failure.
  Status wait(WaitPoint& point, const std::function<bool()>& is_done, Patience patience,
              const std::function<Error()>& on_timeout);

 private:
  friend class ThreadHostComm;
  InProcessWorld(int size, std::chrono::milliseconds timeout);

  const std::chrono::milliseconds timeout_;
  const int spin_rounds_;
  std::vector<std::unique_ptr<CommState>> states_;       // [size]
  std::vector<std::unique_ptr<WaitPoint>> rank_points_;  // [size]
  std::atomic<bool> has_failed_ = false;

  mutable std::mutex mutex_;
  std::optional<Error> failure_;                                                                // guarded by mutex_
  std::map<std::pair<std::string, std::vector<int>>, std::shared_ptr<InProcessGroup>> groups_;  // guarded by mutex_
  std::map<std::pair<int, int>, std::deque<HostMessage>> mail_;  // (from, to); guarded by mutex_
};

}  // namespace gimbal
