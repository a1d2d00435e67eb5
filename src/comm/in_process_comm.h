// InProcessComm: DeviceComm between threads. Peers' vectors are read in place; a rendezvous before and after keeps them
// from changing meanwhile.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/device_comm.h"
#include "comm/in_process_world.h"
#include "tensor/host_buffer.h"

namespace gimbal {

class InProcessWindow;

// The meeting place of the ranks of one group. Thread-safe.
class InProcessGroup {
 public:
  InProcessGroup(InProcessWorld* world, std::vector<int> world_ranks);

  int size() const { return static_cast<int>(world_ranks_.size()); }
  int world_rank(int rank) const { return world_ranks_[static_cast<size_t>(rank)]; }
  WaitPoint& wait_point() { return point_; }

  // Returns when all ranks have come with the same verb. Their pointers stand in pointers() until this rank comes
  // again.
  Status meet(int rank, CommVerb verb, const void* pointer);
  std::span<const void* const> pointers() const { return published_; }

 private:
  friend class InProcessComm;
  Error describe_absent(int rank) const;

  InProcessWorld* world_;         // not owned; the communicators keep it alive
  std::vector<int> world_ranks_;  // [size]
  WaitPoint point_;
  std::atomic<uint64_t> meetings_ = 0;

  mutable std::mutex mutex_;
  int num_arrived_ = 0;                                                 // guarded by mutex_, as the rest
  CommVerb verb_ = CommVerb::kIdle;                                     // of those who have arrived
  int first_rank_ = 0;                                                  // who came first
  std::vector<bool> has_arrived_;                                       // [size]
  std::vector<const void*> arriving_;                                   // [size]
  std::vector<const void*> published_;                                  // [size], written when the last one comes
  std::map<std::pair<int, int>, std::deque<std::vector<float>>> mail_;  // (from, to)
};

class InProcessComm final : public DeviceComm {
 public:
  InProcessComm(std::shared_ptr<InProcessWorld> world, std::shared_ptr<InProcessGroup> group, int rank);

  bool shares_memory() const override { return true; }
  Result<std::unique_ptr<PeerWindow>> make_window(uint64_t bytes, int64_t num_signals) override;

 protected:
  Status do_barrier() override;
  Status do_all_reduce(std::span<float> data) override;
  Status do_all_gather(std::span<const float> own, std::span<const int64_t> counts, std::span<float> all) override;
  Status do_reduce_scatter(std::span<const float> data, std::span<const int64_t> counts, std::span<float> own) override;
  Status do_all_to_all(const AllToAllArgs& args) override;
  Status do_send(std::span<const float> data, int peer) override;
  Status do_receive(std::span<float> data, int peer) override;
  Result<std::span<const void* const>> do_share(const void* own) override;

 private:
  Status all_reduce_at_once(std::span<float> data);
  Status all_reduce_in_chunks(std::span<float> data);
  std::vector<const float*> peer_vectors() const;

  std::shared_ptr<InProcessWorld> world_;
  std::shared_ptr<InProcessGroup> group_;
  std::vector<float> sum_;  // of all_reduce_at_once
};

// One rank's window and pointers to those of its peers.
class InProcessWindow final : public PeerWindow {
 public:
  // The part of a window that peers reach.
  struct Shared {
    HostBuffer memory;
    std::vector<std::atomic<uint64_t>> signals;
    Shared(HostBuffer buffer, int64_t num_signals)
        : memory(std::move(buffer)), signals(static_cast<size_t>(num_signals)) {}
  };
  InProcessWindow(std::shared_ptr<InProcessWorld> world, std::shared_ptr<InProcessGroup> group, DeviceComm* comm,
                  std::vector<std::shared_ptr<Shared>> windows);

  std::byte* local() override { return own().memory.data(); }
  Status put(int peer, uint64_t offset, std::span<const std::byte> data) override;
  Status signal(int peer, int64_t index, uint64_t value) override;
  Status wait_signal(int64_t index, uint64_t value) override;

 private:
  Shared& own() { return *windows_[static_cast<size_t>(rank_)]; }
  std::shared_ptr<InProcessWorld> world_;
  std::shared_ptr<InProcessGroup> group_;
  int rank_;
  CommState* state_;                              // not owned
  std::vector<std::shared_ptr<Shared>> windows_;  // [size]
};

}  // namespace gimbal
