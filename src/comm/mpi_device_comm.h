// MpiDeviceComm: DeviceComm between processes.
//
// Every verb is made of messages between pairs of ranks. A sum then has an order of its own, an error can name the
// peers that have not come, and nothing blocks: all calls are looked at until done or until the deadline.
#pragma once

#include <memory>
#include <vector>

#include "comm/device_comm.h"
#include "comm/mpi_session.h"

namespace gimbal {

class MpiGroup;

// Its end waits for messages under way, no longer than the time-out.
class MpiDeviceComm final : public DeviceComm {
 public:
  // All members must call it; this rank must be one of `world_ranks`. See MpiSession::device_comm.
  static Result<std::unique_ptr<DeviceComm>> create(MpiSession* session, const std::vector<int>& world_ranks,
                                                    CommState* state);
  MpiDeviceComm(MpiSession* session, std::shared_ptr<MpiGroup> group, CommState* state);

  bool shares_memory() const override { return false; }
  // In one machine the window's memory is one-sided memory of MPI; between machines puts are messages, taken when the
  // receiver waits for a signal. All ranks must also destroy it, in the same order as other windows; that waits for all
  // of them, no longer than the time-out. It may outlive this object, not the session.
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
  // `own` becomes the sum of what stands at `own_part` and of what every peer sends. `own` may be `own_part`.
  Status sum_parts(CommVerb verb, std::span<const float> data, std::span<const int64_t> counts, std::span<float> own);

  MpiSession* session_;  // not owned
  std::shared_ptr<MpiGroup> group_;
  MpiOutbox outbox_;
  std::vector<float> received_;  // [size, values of one part], kept between calls; own part unused
};

}  // namespace gimbal
