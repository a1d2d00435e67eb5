// mpi_ranks: ranks as the processes of mpirun. Without MPI in the build every call refuses.
#pragma once

#include <functional>
#include <memory>

#include "base/result.h"
#include "comm/host_comm.h"
#include "engine/execution_plan.h"
#include "model/rank_context.h"

namespace gimbal {

class MpiSession;

// Calls `body` with the session when ranks are processes and this one is rank 0, with nullptr when ranks are threads.
// Other processes execute what rank 0 sends until it stops. A failure under mpirun ends this process with its exit code
// after printing, so that mpirun ends the others: nobody waits for a rank that will not come.
Status run_with_ranks(const Settings& settings, const ModelConfig& config,
                      const std::function<Status(MpiSession*)>& body);

// The processes of the session; none for nullptr.
RankProcesses rank_processes(const MpiSession* mpi);
std::unique_ptr<HostComm> make_mpi_host_comm(MpiSession& mpi);
// Collective over all processes.
Result<RankComms> make_mpi_comms(MpiSession& mpi, const ParallelLayout& layout);

}  // namespace gimbal
