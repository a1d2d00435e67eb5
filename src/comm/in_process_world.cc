#include "comm/in_process_world.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "base/check.h"
#include "comm/in_process_comm.h"

namespace gimbal {

// Mailboxes of the world; the mutex of the world guards them.
class ThreadHostComm final : public HostComm {
 public:
  ThreadHostComm(std::shared_ptr<InProcessWorld> world, int rank) : world_(std::move(world)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return world_->size(); }
  void raise(const Error& error) override { world_->raise(error); }

  Status send(int peer, HostMessage message) override {
    {
      const std::lock_guard lock(world_->mutex_);
      if (world_->failure_) return fail(*world_->failure_);
      world_->mail_[{rank_, peer}].push_back(std::move(message));
    }
    world_->rank_point(peer).notify();
    return {};
  }

  Result<HostMessage> receive(int peer, Patience patience) override {
    HostMessage message;
    const auto take = [&] {
      const std::lock_guard lock(world_->mutex_);
      auto& box = world_->mail_[{peer, rank_}];
      if (box.empty()) return false;
      message = std::move(box.front());
      box.pop_front();
      return true;
    };
    const auto late = [&] {
      return Error::failed(fmt::format(
          "Rank {} of {} had no answer of rank {} within {:.0f} s (--comm-timeout-s); rank {} was last seen in {}.",
          rank_, size(), peer, static_cast<double>(world_->timeout().count()) / 1000, peer,
          describe_position(world_->state(peer))));
    };
    GIMBAL_RETURN_IF_ERROR(world_->wait(world_->rank_point(rank_), take, patience, late));
    return message;
  }

 private:
  std::shared_ptr<InProcessWorld> world_;
  int rank_;
};

InProcessWorld::InProcessWorld(int size, std::chrono::milliseconds timeout)
    : timeout_(timeout), spin_rounds_(size <= static_cast<int>(std::thread::hardware_concurrency()) ? 2000 : 0) {
  for (int rank = 0; rank < size; ++rank) {
    states_.push_back(std::make_unique<CommState>());
    states_.back()->world_rank = rank;
    states_.back()->world_size = size;
    rank_points_.push_back(std::make_unique<WaitPoint>());
  }
}

std::shared_ptr<InProcessWorld> InProcessWorld::create(int size, std::chrono::milliseconds timeout) {
  GIMBAL_CHECK_GE(size, 1);
  return std::shared_ptr<InProcessWorld>(new InProcessWorld(size, timeout));
}

std::unique_ptr<HostComm> InProcessWorld::host_comm(int rank) {
  return std::make_unique<ThreadHostComm>(shared_from_this(), rank);
}

std::unique_ptr<DeviceComm> InProcessWorld::device_comm(int rank, const std::vector<int>& world_ranks,
                                                        const std::string& name) {
  const auto at = std::find(world_ranks.begin(), world_ranks.end(), rank);
  GIMBAL_CHECK(at != world_ranks.end());
  const std::lock_guard lock(mutex_);
  auto& group = groups_[{name, world_ranks}];
  if (!group) group = std::make_shared<InProcessGroup>(this, world_ranks);
  return std::make_unique<InProcessComm>(shared_from_this(), group, static_cast<int>(at - world_ranks.begin()));
}

void InProcessWorld::raise(const Error& error) {
  std::vector<WaitPoint*> points;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = error;
    has_failed_.store(true, std::memory_order_release);
    for (auto& [key, group] : groups_) points.push_back(&group->wait_point());
  }
  for (auto& point : rank_points_) points.push_back(point.get());
  for (WaitPoint* point : points) point->notify();
}

std::optional<Error> InProcessWorld::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void WaitPoint::notify() {
  {
    const std::lock_guard lock(mutex_);
    changes_.fetch_add(1, std::memory_order_release);
  }
  changed_.notify_all();
}

void WaitPoint::wait(uint64_t seen, std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [&] { return changes() != seen; });
}

Status InProcessWorld::wait(WaitPoint& point, const std::function<bool()>& is_done, Patience patience,
                            const std::function<Error()>& on_timeout) {
  const auto start = std::chrono::steady_clock::now();
  const auto deadline = start + (patience == Patience::kTimeout ? timeout_ : std::chrono::hours(24 * 365));
  for (int round = 0;; ++round) {
    const uint64_t seen = point.changes();
    if (has_failed()) return fail(*failure());
    if (is_done()) return {};
    if (round < spin_rounds_) continue;
    if (std::chrono::steady_clock::now() >= deadline) {
      raise(on_timeout());
      return fail(*failure());
    }
    point.wait(seen, deadline);
  }
}

}  // namespace gimbal
