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

class MpiHostComm final : public HostComm {
 public:
  MpiHostComm(MpiSession* session, std::shared_ptr<MpiHostChannel> channel);
  // Waits for messages under way, no longer than the time-out.
  ~MpiHostComm() override;

  int rank() const override { return session_->rank(); }
  int size() const override { return session_->size(); }
  // Does not wait for the receiver. At most 2^31 - 1 bytes.
  Status send(int peer, HostMessage message) override;
  Result<HostMessage> receive(int peer, Patience patience) override;
  // Ends all processes of the job; does not return.
  void raise(const Error& error) override { session_->abort(error); }

 private:
  struct Outbox;
  // During a turn: lets go of the messages that have left.
  Status let_go_of_sent();

  MpiSession* session_;  // not owned
  std::shared_ptr<MpiHostChannel> channel_;
  std::unique_ptr<Outbox> outbox_;
};

}  // namespace gimbal
