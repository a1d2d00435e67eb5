// MpiHostComm: HostComm between processes, over a communicator of its own.
#pragma once

#include <memory>

#include "comm/host_comm.h"
#include "comm/mpi_session.h"

namespace gimbal {

// The communicator of the host messages.
struct MpiHostChannel;

// All processes of the job must call it. Error: MPI's.
Result<std::shared_ptr<MpiHostChannel>> open_mpi_host_channel(MpiSession* session);

// Its end waits for messages under way, no longer than the time-out.
class MpiHostComm final : public HostComm {
 public:
  MpiHostComm(MpiSession* session, std::shared_ptr<MpiHostChannel> channel);

  int rank() const override { return session_->rank(); }
  int size() const override { return session_->size(); }
  // Does not wait for the receiver. At most 2^31 - 1 bytes.
  Status send(int peer, HostMessage message) override;
  Result<HostMessage> receive(int peer, Patience patience) override;
  // Ends all processes of the job; does not return.
  void raise(const Error& error) override { session_->abort(error); }

 private:
  MpiSession* session_;  // not owned
  std::shared_ptr<MpiHostChannel> channel_;
  MpiOutbox outbox_;
};

}  // namespace gimbal
