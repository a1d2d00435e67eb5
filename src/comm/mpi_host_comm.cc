#include "comm/mpi_host_comm.h"

#include <utility>

#include <fmt/format.h>
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include "base/check.h"

namespace gimbal {
namespace {

constexpr int kHostMessageTag = 1;
// Workers wait here while there is nothing to do.
constexpr std::chrono::microseconds kLongestPause(1000);

}  // namespace

struct MpiHostChannel {
  MpiSession* session = nullptr;
  MPI_Comm comm = MPI_COMM_NULL;

  ~MpiHostChannel() {
    if (comm == MPI_COMM_NULL) return;
    if (const auto turn = session->take_turn(nullptr)) MPI_Comm_free(&comm);
  }
};

Result<std::shared_ptr<MpiHostChannel>> open_mpi_host_channel(MpiSession* session) {
  auto channel = std::make_shared<MpiHostChannel>();
  channel->session = session;
  GIMBAL_ASSIGN_OR_RETURN(const MpiTurn turn, session->take_turn(nullptr));
  GIMBAL_RETURN_IF_ERROR(session->check(MPI_Comm_dup(MPI_COMM_WORLD, &channel->comm), "MPI_Comm_dup"));
  GIMBAL_RETURN_IF_ERROR(
      session->check(MPI_Comm_set_errhandler(channel->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
  return channel;
}

MpiHostComm::MpiHostComm(MpiSession* session, std::shared_ptr<MpiHostChannel> channel)
    : session_(session), channel_(std::move(channel)), outbox_(session, nullptr, MPI_Comm_c2f(channel_->comm)) {}

Status MpiHostComm::send(int peer, HostMessage message) {
  GIMBAL_CHECK(peer >= 0 && peer < size() && message != nullptr);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(*message));
  return outbox_.send(peer, kHostMessageTag, bytes, std::move(message));
}

Result<HostMessage> MpiHostComm::receive(int peer, Patience patience) {
  GIMBAL_CHECK(peer >= 0 && peer < size());
  std::string text;
  MPI_Request request = MPI_REQUEST_NULL;
  bool has_begun = false;
  MpiWait wait;
  wait.patience = patience;
  wait.longest_pause = kLongestPause;
  wait.is_done = [&]() -> Result<bool> {
    int flag = 0;
    if (!has_begun) {
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status;
      GIMBAL_RETURN_IF_ERROR(
          session_->check(MPI_Improbe(peer, kHostMessageTag, channel_->comm, &flag, &message, &status), "MPI_Improbe"));
      if (flag == 0) return false;
      int count = 0;
      GIMBAL_RETURN_IF_ERROR(session_->check(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count"));
      text.resize(static_cast<size_t>(count));
      GIMBAL_RETURN_IF_ERROR(
          session_->check(MPI_Imrecv(text.data(), count, MPI_BYTE, &message, &request), "MPI_Imrecv"));
      has_begun = true;
    }
    GIMBAL_RETURN_IF_ERROR(session_->check(MPI_Test(&request, &flag, MPI_STATUS_IGNORE), "MPI_Test"));
    return flag != 0;
  };
  wait.on_timeout = [&] {
    return Error::failed(fmt::format("{} for an answer of rank {}. It is stuck or far slower than its peers.",
                                     session_->describe_wait("host messages"), peer));
  };
  GIMBAL_RETURN_IF_ERROR(session_->wait(wait));
  return std::make_shared<const std::string>(std::move(text));
}

}  // namespace gimbal
