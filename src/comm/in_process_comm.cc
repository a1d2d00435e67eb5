#include "comm/in_process_comm.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/check.h"

namespace gimbal {
namespace {

// Up to here one pass over all vectors costs less than a third rendezvous.
constexpr size_t kMostValuesAtOnce = 16 * 1024;

}  // namespace

InProcessGroup::InProcessGroup(InProcessWorld* world, std::vector<int> world_ranks)
    : world_(world),
      world_ranks_(std::move(world_ranks)),
      has_arrived_(world_ranks_.size(), false),
      arriving_(world_ranks_.size(), nullptr),
      published_(world_ranks_.size(), nullptr) {}

Error InProcessGroup::describe_absent(int rank) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> absent;
  for (int peer = 0; peer < size(); ++peer) {
    if (has_arrived_[static_cast<size_t>(peer)]) continue;
    absent.push_back(
        fmt::format("rank {}, last seen in {}", world_rank(peer), describe_position(world_->state(world_rank(peer)))));
  }
  return Error::failed(fmt::format(
      "Rank {} of {} waited {:.1f} s (--comm-timeout-s) in {} for {}. A rank is stuck or far slower than its peers.",
      world_rank(rank), world_->size(), static_cast<double>(world_->timeout().count()) / 1000,
      describe_position(world_->state(world_rank(rank))), fmt::join(absent, "; ")));
}

Status InProcessGroup::meet(int rank, CommVerb verb, const void* pointer) {
  uint64_t meeting = 0;
  bool is_last = false;
  {
    const std::lock_guard lock(mutex_);
    if (num_arrived_ > 0 && verb_ != verb) {
      const Error error = Error::failed(fmt::format(
          "Rank {} came to {} while rank {} is in {}: the ranks do not execute the same plan.", world_rank(rank),
          name_of(verb), world_rank(first_rank_), describe_position(world_->state(world_rank(first_rank_)))));
      return fail(error);
    }
    if (num_arrived_ == 0) first_rank_ = rank;
    verb_ = verb;
    meeting = meetings_.load(std::memory_order_relaxed);
    arriving_[static_cast<size_t>(rank)] = pointer;
    has_arrived_[static_cast<size_t>(rank)] = true;
    is_last = ++num_arrived_ == size();
    if (is_last) {
      published_ = arriving_;
      num_arrived_ = 0;
      std::fill(has_arrived_.begin(), has_arrived_.end(), false);
      meetings_.store(meeting + 1, std::memory_order_release);
    }
  }
  if (is_last) return point_.notify(), Status{};
  return world_->wait(
      point_, [&] { return meetings_.load(std::memory_order_acquire) != meeting; }, Patience::kTimeout,
      [&] { return describe_absent(rank); });
}

InProcessComm::InProcessComm(std::shared_ptr<InProcessWorld> world, std::shared_ptr<InProcessGroup> group, int rank)
    : DeviceComm(rank, group->size(), &world->state(group->world_rank(rank))),
      world_(std::move(world)),
      group_(std::move(group)) {}

std::vector<const float*> InProcessComm::peer_vectors() const {
  std::vector<const float*> vectors;
  for (const void* pointer : group_->pointers()) vectors.push_back(static_cast<const float*>(pointer));
  return vectors;
}

Status InProcessComm::do_barrier() { return group_->meet(rank(), CommVerb::kBarrier, nullptr); }

Status InProcessComm::do_all_reduce(std::span<float> data) {
  return data.size() <= kMostValuesAtOnce ? all_reduce_at_once(data) : all_reduce_in_chunks(data);
}

Status InProcessComm::all_reduce_at_once(std::span<float> data) {
  GIMBAL_RETURN_IF_ERROR(group_->meet(rank(), CommVerb::kAllReduce, data.data()));
  sum_.resize(data.size());
  sum_in_rank_order(peer_vectors(), sum_);
  GIMBAL_RETURN_IF_ERROR(group_->meet(rank(), CommVerb::kAllReduce, nullptr));
  std::copy(sum_.begin(), sum_.end(), data.begin());
  return {};
}

// Each rank sums one chunk of all vectors into its own, then everybody copies the chunks of the others.
Status InProcessComm::all_reduce_in_chunks(std::span<float> data) {
  const auto begin_of = [&](int chunk) {
    return data.size() * static_cast<size_t>(chunk) / static_cast<size_t>(size());
  };
  GIMBAL_RETURN_IF_ERROR(group_->meet(rank(), CommVerb::kAllReduce, data.data()));
  const std::vector<const float*> vectors = peer_vectors();
  std::vector<const float*> chunks = vectors;
  for (const float*& chunk : chunks) chunk += begin_of(rank());
  sum_in_rank_order(chunks, data.subspan(begin_of(rank()), begin_of(rank() + 1) - begin_of(rank())));
  GIMBAL_RETURN_IF_ERROR(group_->meet(rank(), CommVerb::kAllReduce, nullptr));
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    std::copy(vectors[static_cast<size_t>(peer)] + begin_of(peer),
              vectors[static_cast<size_t>(peer)] + begin_of(peer + 1),
              data.begin() + static_cast<std::ptrdiff_t>(begin_of(peer)));
  }
  return group_->meet(rank(), CommVerb::kAllReduce, nullptr);
}

Status InProcessComm::do_all_gather(std::span<const float> own, std::span<const int64_t> counts, std::span<float> all) {
  GIMBAL_RETURN_IF_ERROR(group_->meet(rank(), CommVerb::kAllGather, own.data()));
  const std::vector<const float*> vectors = peer_vectors();
  float* at = all.data();
  for (size_t peer = 0; peer < vectors.size(); ++peer) at = std::copy_n(vectors[peer], counts[peer], at);
  return group_->meet(rank(), CommVerb::kAllGather, nullptr);
}

Status InProcessComm::do_reduce_scatter(std::span<const float> data, std::span<const int64_t> counts,
                                        std::span<float> own) {
  GIMBAL_RETURN_IF_ERROR(group_->meet(rank(), CommVerb::kReduceScatter, data.data()));
  std::vector<const float*> parts = peer_vectors();
  for (const float*& part : parts) part += begin_of_part(counts, rank());
  if (!own.empty()) sum_in_rank_order(parts, own);
  return group_->meet(rank(), CommVerb::kReduceScatter, nullptr);
}

Status InProcessComm::do_all_to_all(const AllToAllArgs& args) {
  GIMBAL_RETURN_IF_ERROR(group_->meet(rank(), CommVerb::kAllToAll, &args));
  std::byte* at = args.receive.data();
  for (int peer = 0; peer < size(); ++peer) {
    const auto& theirs = *static_cast<const AllToAllArgs*>(group_->pointers()[static_cast<size_t>(peer)]);
    uint64_t offset = 0;
    for (int before = 0; before < rank(); ++before) offset += theirs.send_bytes[static_cast<size_t>(before)];
    const uint64_t bytes = theirs.send_bytes[static_cast<size_t>(rank())];
    GIMBAL_CHECK_EQ(bytes, args.receive_bytes[static_cast<size_t>(peer)]);
    if (bytes > 0) std::memcpy(at, theirs.send.data() + offset, bytes);
    at += bytes;
  }
  return group_->meet(rank(), CommVerb::kAllToAll, nullptr);
}

Status InProcessComm::do_send(std::span<const float> data, int peer) {
  if (world_->has_failed()) return fail(*world_->failure());
  {
    const std::lock_guard lock(group_->mutex_);
    group_->mail_[{rank(), peer}].emplace_back(data.begin(), data.end());
  }
  world_->rank_point(group_->world_rank(peer)).notify();
  return {};
}

Status InProcessComm::do_receive(std::span<float> data, int peer) {
  std::vector<float> message;
  const auto take = [&] {
    const std::lock_guard lock(group_->mutex_);
    auto& box = group_->mail_[{peer, rank()}];
    if (box.empty()) return false;
    message = std::move(box.front());
    box.pop_front();
    return true;
  };
  const auto late = [&] {
    const int peer_rank = group_->world_rank(peer);
    return Error::failed(
        fmt::format("Rank {} of {} waited {:.1f} s (--comm-timeout-s) in {} for a message of rank {}, last seen in {}.",
                    state().world_rank, world_->size(), static_cast<double>(world_->timeout().count()) / 1000,
                    describe_position(state()), peer_rank, describe_position(world_->state(peer_rank))));
  };
  WaitPoint& point = world_->rank_point(group_->world_rank(rank()));
  GIMBAL_RETURN_IF_ERROR(world_->wait(point, take, Patience::kTimeout, late));
  GIMBAL_CHECK_EQ(message.size(), data.size());
  std::copy(message.begin(), message.end(), data.begin());
  return {};
}

Result<std::span<const void* const>> InProcessComm::do_share(const void* own) {
  GIMBAL_RETURN_IF_ERROR(group_->meet(rank(), CommVerb::kShare, own));
  return group_->pointers();
}

Result<std::unique_ptr<PeerWindow>> InProcessComm::make_window(uint64_t bytes, int64_t num_signals) {
  std::shared_ptr<InProcessWindow::Shared> own;
  Result<HostBuffer> memory = HostBuffer::allocate(std::max<uint64_t>(bytes, 1));
  // A rank without memory still comes, so that its peers learn of it.
  if (memory) own = std::make_shared<InProcessWindow::Shared>(std::move(*memory), num_signals);
  std::vector<std::shared_ptr<InProcessWindow::Shared>> windows;
  GIMBAL_RETURN_IF_ERROR(group_->meet(rank(), CommVerb::kShare, &own));
  for (const void* pointer : group_->pointers())
    windows.push_back(*static_cast<const std::shared_ptr<InProcessWindow::Shared>*>(pointer));
  GIMBAL_RETURN_IF_ERROR(group_->meet(rank(), CommVerb::kShare, nullptr));
  if (std::find(windows.begin(), windows.end(), nullptr) != windows.end()) {
    return fail(Error::failed(fmt::format("An exchange window of {} bytes per rank could not be allocated.", bytes)));
  }
  return std::make_unique<InProcessWindow>(world_, group_, this, std::move(windows));
}

InProcessWindow::InProcessWindow(std::shared_ptr<InProcessWorld> world, std::shared_ptr<InProcessGroup> group,
                                 DeviceComm* comm, std::vector<std::shared_ptr<Shared>> windows)
    : world_(std::move(world)),
      group_(std::move(group)),
      rank_(comm->rank()),
      state_(&comm->state()),
      windows_(std::move(windows)) {}

Status InProcessWindow::put(int peer, uint64_t offset, std::span<const std::byte> data) {
  const CommVerbScope scope(*state_, CommVerb::kPut, peer == rank_ ? 0 : data.size());
  HostBuffer& memory = windows_[static_cast<size_t>(peer)]->memory;
  GIMBAL_CHECK_LE(offset + data.size(), memory.size());
  if (!data.empty()) std::memcpy(memory.data() + offset, data.data(), data.size());
  return {};
}

Status InProcessWindow::signal(int peer, int64_t index, uint64_t value) {
  windows_[static_cast<size_t>(peer)]->signals[static_cast<size_t>(index)].store(value, std::memory_order_release);
  world_->rank_point(group_->world_rank(peer)).notify();
  return {};
}

Status InProcessWindow::wait_signal(int64_t index, uint64_t value) {
  const CommVerbScope scope(*state_, CommVerb::kWaitSignal, 0);
  const std::atomic<uint64_t>& signal = own().signals[static_cast<size_t>(index)];
  const auto late = [&] {
    return Error::failed(fmt::format(
        "Rank {} of {} waited {:.1f} s (--comm-timeout-s) in {} for signal {} of its window.", state_->world_rank,
        world_->size(), static_cast<double>(world_->timeout().count()) / 1000, describe_position(*state_), index));
  };
  return world_->wait(
      world_->rank_point(group_->world_rank(rank_)), [&] { return signal.load(std::memory_order_acquire) >= value; },
      Patience::kTimeout, late);
}

}  // namespace gimbal
