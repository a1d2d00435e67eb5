#include "comm/host_comm.h"

#include <utility>

namespace gimbal {
namespace {

// First character: the kind of error, or '+' for success; then the message.
std::string encode(const Status& status) {
  if (status) return "+";
  return std::string(1, static_cast<char>('0' + static_cast<int>(status.error().kind))) + status.error().message;
}

Status decode(const std::string& text) {
  if (text.empty() || text[0] == '+') return {};
  Error error = Error::failed(text.substr(1));
  error.kind = static_cast<ErrorKind>(text[0] - '0');
  return fail(std::move(error));
}

}  // namespace

Status agree(HostComm& comm, const Status& own) {
  if (comm.rank() != 0) {
    GIMBAL_RETURN_IF_ERROR(comm.send(0, std::make_shared<const std::string>(encode(own))));
    GIMBAL_ASSIGN_OR_RETURN(const HostMessage verdict, comm.receive(0, Patience::kForever));
    return decode(*verdict);
  }
  Status verdict = own;
  for (int peer = 1; peer < comm.size(); ++peer) {
    GIMBAL_ASSIGN_OR_RETURN(const HostMessage message, comm.receive(peer, Patience::kForever));
    if (verdict) verdict = decode(*message);
  }
  const auto answer = std::make_shared<const std::string>(encode(verdict));
  for (int peer = 1; peer < comm.size(); ++peer) GIMBAL_RETURN_IF_ERROR(comm.send(peer, answer));
  return verdict;
}

}  // namespace gimbal
