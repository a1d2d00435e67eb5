// Engine: a loaded model that answers requests. Any number may live in one process.
#pragma once

#include <memory>

#include "base/result.h"
#include "engine/rank_executor.h"
#include "engine/request_gateway.h"
#include "model_config/model_config.h"
#include "settings/settings.h"

namespace gimbal {

class EngineLoop;

class Engine {
 public:
  // Loads weights, takes memory, computes one token to prove that the model runs, then starts the loop. Blocking.
  // `mpi` is nullptr for ranks as threads.
  static Result<std::unique_ptr<Engine>> start(const Settings& settings, const ModelConfig& config,
                                               MpiSession* mpi = nullptr);
  ~Engine();

  RequestGateway& gateway();
  const EngineDescription& description() const { return executor_->description(); }

  // Ends what is in flight with FinishReason::kAbort and joins the loop. May be called twice.
  void stop();

  // Ends every request with the error at once, even when a rank never comes back; the process should end then.
  void fail_all(const Error& error);

  // What every rank has counted; after stop().
  Result<std::vector<RankReport>> reports() { return executor_->reports(); }

 private:
  explicit Engine(std::unique_ptr<RankExecutor> executor);
  std::unique_ptr<RankExecutor> executor_;
  std::unique_ptr<EngineLoop> loop_;
};

}  // namespace gimbal
