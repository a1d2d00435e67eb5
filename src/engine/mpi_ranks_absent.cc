// The build has no MPI: ranks are threads.
#include "engine/mpi_ranks.h"
#include "engine/rank_executor.h"

namespace gimbal {
namespace {

Error no_mpi() {
  return Error::invalid(
      "Ranks as MPI processes. Required: a build with OpenMPI. Offered: ranks as threads (--comm thread). Install "
      "libopenmpi-dev and build again.",
      "--comm");
}

}  // namespace

RankProcesses rank_processes(const MpiSession*) { return {}; }
std::unique_ptr<HostComm> make_mpi_host_comm(MpiSession&) { return nullptr; }
Result<RankComms> make_mpi_comms(MpiSession&, const ParallelLayout&) { return fail(no_mpi()); }
Status serve_rank(const Settings&, const ModelConfig&, MpiSession&) { return fail(no_mpi()); }
Status run_with_ranks(const Settings&, const ModelConfig&, const std::function<Status(MpiSession*)>& body) {
  return body(nullptr);
}

}  // namespace gimbal
