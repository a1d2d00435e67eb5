// rank_worker: the life of every rank other than 0, as a thread or as a process.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "comm/host_comm.h"
#include "engine/rank_executor.h"
#include "model/rank_context.h"

namespace gimbal {

// Validates, opens the checkpoint and plans: what every process does for itself.
Result<std::unique_ptr<LoadedModel>> open_model(const Settings& settings, const ModelConfig& config,
                                                const RankProcesses& processes);

// Loads the rank, agrees with the others that all went well, executes messages of rank 0 until it says stop. An error
// is what ended the world, or this rank's own, which the caller must raise.
Status run_rank(const LoadedModel& model, int64_t rank, HostComm& host, RankComms comms);

}  // namespace gimbal
