#include "engine/rank_worker.h"

#include <utility>

#include "engine/rank_messages.h"

namespace gimbal {
namespace {

Status answer(HostComm& host, std::string message) {
  return host.send(0, std::make_shared<const std::string>(std::move(message)));
}

}  // namespace

Status run_rank(const LoadedModel& model, int64_t rank, HostComm& host, RankComms comms) {
  GIMBAL_ASSIGN_OR_RETURN(
      const std::unique_ptr<ModelRunner> runner,
      ModelRunner::load({.plan = &model.plan, .config = &model.config, .checkpoint = model.checkpoint, .rank = rank},
                        host, std::move(comms)));
  while (true) {
    GIMBAL_ASSIGN_OR_RETURN(const HostMessage message, host.receive(0, Patience::kForever));
    switch (command_of(*message)) {
      case RankCommand::kStop:
        return {};
      case RankCommand::kReport:
        GIMBAL_RETURN_IF_ERROR(answer(host, encode_report(runner->report())));
        break;
      case RankCommand::kStep: {
        GIMBAL_ASSIGN_OR_RETURN(const std::optional<StepResult> result, runner->run(decode_step(*message)));
        if (result) GIMBAL_RETURN_IF_ERROR(answer(host, encode_result(*result)));
        break;
      }
    }
  }
}

}  // namespace gimbal
