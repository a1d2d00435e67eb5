#include "engine/mpi_ranks.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <numeric>

#include <fmt/format.h>

#include "comm/mpi_session.h"
#include "engine/rank_executor.h"
#include "engine/rank_worker.h"
#include "settings/environment.h"

namespace gimbal {
namespace {

// Set by mpirun for every process it starts.
constexpr const char* kWorldSize = "OMPI_COMM_WORLD_SIZE";
constexpr const char* kLocalSize = "OMPI_COMM_WORLD_LOCAL_SIZE";

// A rank that fails must not wait in MPI_Finalize for peers that wait for it. What is wrong with the request is said by
// rank 0 alone: every rank finds the same.
[[noreturn]] void end_failed_process(MpiSession& session, const Error& error) {
  if (error.kind != ErrorKind::kInvalidRequest) session.abort(error);
  if (session.rank() == 0) fmt::print(stderr, "gimbal: {}\n", error.message);
  std::fflush(stderr);
  std::_Exit(exit_code(error.kind));
}

}  // namespace

Status run_with_ranks(const Settings& settings, const ModelConfig& config,
                      const std::function<Status(MpiSession*)>& body) {
  const bool are_processes =
      settings.comm == "mpi" || (settings.comm == "auto" && read_environment(kWorldSize).has_value());
  if (!are_processes) return body(nullptr);
  const std::chrono::milliseconds timeout(static_cast<int64_t>(settings.comm_timeout_s * 1000));
  GIMBAL_ASSIGN_OR_RETURN(const std::unique_ptr<MpiSession> session, MpiSession::start(timeout));
  const Status status = session->rank() == 0 ? body(session.get()) : serve_rank(settings, config, *session);
  if (!status) end_failed_process(*session, status.error());
  return {};
}

RankProcesses rank_processes(const MpiSession* mpi) {
  if (mpi == nullptr) return {};
  const std::optional<std::string> local = read_environment(kLocalSize);
  const int64_t on_machine = local ? std::strtol(local->c_str(), nullptr, 10) : mpi->size();
  return {.count = mpi->size(), .count_on_machine = std::max<int64_t>(on_machine, 1)};
}

std::unique_ptr<HostComm> make_mpi_host_comm(MpiSession& mpi) { return mpi.host_comm(); }

Result<RankComms> make_mpi_comms(MpiSession& mpi, const ParallelLayout& layout) {
  const int64_t rank = mpi.rank();
  std::vector<int> everybody(static_cast<size_t>(mpi.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  RankComms comms;
  comms.state = std::make_unique<CommState>();
  comms.state->world_rank = mpi.rank();
  comms.state->world_size = mpi.size();
  GIMBAL_ASSIGN_OR_RETURN(comms.world, mpi.device_comm(everybody, comms.state.get()));
  GIMBAL_ASSIGN_OR_RETURN(comms.stage,
                          mpi.device_comm(stage_group(layout, coordinates_of(layout, rank).stage), comms.state.get()));
  GIMBAL_ASSIGN_OR_RETURN(comms.attention_tp, mpi.device_comm(attention_tp_group(layout, rank), comms.state.get()));
  return comms;
}

Status serve_rank(const Settings& settings, const ModelConfig& config, MpiSession& mpi) {
  // Rank 0 decides when to stop and may still drain requests; a signal to all must not take its ranks away.
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGINT, SIG_IGN);
  const std::unique_ptr<HostComm> host = mpi.host_comm();
  const Result<std::unique_ptr<LoadedModel>> model = open_model(settings, config, rank_processes(&mpi));
  Status own;
  if (!model) own = fail(model.error());
  GIMBAL_RETURN_IF_ERROR(agree(*host, own));
  GIMBAL_ASSIGN_OR_RETURN(RankComms comms, make_mpi_comms(mpi, (*model)->plan.layout));
  return run_rank(**model, mpi.rank(), *host, std::move(comms));
}

}  // namespace gimbal
