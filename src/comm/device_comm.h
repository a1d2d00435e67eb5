// DeviceComm: tensors between the ranks of one group, as one rank sees it.
//
// Every rank of the group makes the same calls in the same order. Sums run in rank order, so their bits do not depend
// on timing. Every call ends: with its result, or with an error that names rank, verb, layer and step once a peer has
// not come within the world's time-out or has failed. After an error the group cannot be used again.
// One rank's object is used by one thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "comm/comm_state.h"

namespace gimbal {

// Memory of this rank that the peers of a group write to. Signals are counters that only grow.
class PeerWindow {
 public:
  virtual ~PeerWindow() = default;
  virtual std::byte* local() = 0;  // [bytes], zeroed at creation, 64-byte aligned
  // Copies `data` into the window of `peer`. It has arrived when a later signal to that peer is seen.
  virtual Status put(int peer, uint64_t offset, std::span<const std::byte> data) = 0;
  // Sets signal `index` of `peer` to `value`.
  virtual Status signal(int peer, int64_t index, uint64_t value) = 0;
  // Waits until the own signal `index` is at least `value`.
  virtual Status wait_signal(int64_t index, uint64_t value) = 0;
};

struct AllToAllArgs {
  std::span<const std::byte> send = {};          // [sum of send_bytes] parts for rank 0, 1, ... in order
  std::span<const uint64_t> send_bytes = {};     // [size]
  std::span<std::byte> receive = {};             // [sum of receive_bytes] parts of rank 0, 1, ... in order
  std::span<const uint64_t> receive_bytes = {};  // [size]
};

class DeviceComm {
 public:
  DeviceComm(int rank, int size, CommState* state) : rank_(rank), size_(size), state_(state) {}
  virtual ~DeviceComm() = default;
  DeviceComm(const DeviceComm&) = delete;
  DeviceComm& operator=(const DeviceComm&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  CommState& state() { return *state_; }

  Status barrier();
  // data[i] becomes the sum over ranks 0, 1, ... of data[i].
  Status all_reduce(std::span<float> data);
  // `all` becomes the parts of rank 0, 1, ...; part r has counts[r] values, own.size() == counts[rank()].
  Status all_gather(std::span<const float> own, std::span<const int64_t> counts, std::span<float> all);
  // `own` becomes part rank() of the sum over ranks 0, 1, ... of `data`; part r has counts[r] values.
  Status reduce_scatter(std::span<const float> data, std::span<const int64_t> counts, std::span<float> own);
  Status all_to_all(const AllToAllArgs& args);
  // send returns when `data` may be changed; it does not wait for the receiver. Order is kept per pair of ranks.
  Status send(std::span<const float> data, int peer);
  Status receive(std::span<float> data, int peer);

  // Whether ranks may read each other's memory.
  virtual bool shares_memory() const = 0;
  // Every rank's pointer, in rank order; only with shares_memory(). What a pointer names may be read by peers until the
  // owner's next call that all ranks take part in.
  Result<std::span<const void* const>> share(const void* own);
  // Takes part in making one window of `bytes` and `num_signals` per rank. All ranks must call it.
  virtual Result<std::unique_ptr<PeerWindow>> make_window(uint64_t bytes, int64_t num_signals) = 0;

 protected:
  virtual Status do_barrier() = 0;
  virtual Status do_all_reduce(std::span<float> data) = 0;
  virtual Status do_all_gather(std::span<const float> own, std::span<const int64_t> counts, std::span<float> all) = 0;
  virtual Status do_reduce_scatter(std::span<const float> data, std::span<const int64_t> counts,
                                   std::span<float> own) = 0;
  virtual Status do_all_to_all(const AllToAllArgs& args) = 0;
  virtual Status do_send(std::span<const float> data, int peer) = 0;
  virtual Status do_receive(std::span<float> data, int peer) = 0;
  virtual Result<std::span<const void* const>> do_share(const void* own) = 0;

 private:
  int rank_;
  int size_;
  CommState* state_;  // not owned; one per rank
};

// Marks a verb in the state for as long as it runs, and counts it.
class CommVerbScope {
 public:
  CommVerbScope(CommState& state, CommVerb verb, uint64_t bytes)
      : state_(state), verb_(verb), start_(std::chrono::steady_clock::now()) {
    state_.verb.store(verb, std::memory_order_relaxed);
    ++state_.calls[static_cast<size_t>(verb)];
    state_.bytes[static_cast<size_t>(verb)] += bytes;
  }
  ~CommVerbScope() {
    state_.verb.store(CommVerb::kIdle, std::memory_order_relaxed);
    state_.seconds[static_cast<size_t>(verb_)] +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  CommVerbScope(const CommVerbScope&) = delete;
  CommVerbScope& operator=(const CommVerbScope&) = delete;

 private:
  CommState& state_;
  const CommVerb verb_;
  const std::chrono::steady_clock::time_point start_;
};

// sum[i] = parts[0][i] + parts[1][i] + ..., the order of every reduction. `sum` may be one of the parts.
void sum_in_rank_order(std::span<const float* const> parts, std::span<float> sum);

// Where the part of `rank` begins.
int64_t begin_of_part(std::span<const int64_t> counts, int rank);

}  // namespace gimbal
