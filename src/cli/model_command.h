// model_command: what commands that compute have in common: the model's config, and the other ranks when mpirun started
// this process.
#pragma once

#include <functional>

#include "base/result.h"
#include "engine/mpi_ranks.h"
#include "model_config/model_config.h"
#include "settings/settings.h"

namespace gimbal {

// Runs `body` on rank 0 (mpi is nullptr for ranks as threads); processes of other ranks execute what it sends and
// return its verdict. Under mpirun a failure ends the process here, so that mpirun ends the others.
Status run_model_command(const Settings& settings,
                         const std::function<Status(const ModelConfig& config, MpiSession* mpi)>& body);

}  // namespace gimbal
