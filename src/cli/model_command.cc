#include "cli/model_command.h"

#include <utility>

namespace gimbal {

Status run_model_command(const Settings& settings,
                         const std::function<Status(const ModelConfig& config, MpiSession* mpi)>& body) {
  GIMBAL_ASSIGN_OR_RETURN(const ModelConfig config, read_model_config(settings.model_path));
  return run_with_ranks(settings, config, [&](MpiSession* mpi) { return body(config, mpi); });
}

}  // namespace gimbal
