// Engine: a loaded model that answers requests. Any number may live in one process.
#pragma once

#include <memory>

#include "base/result.h"
#include "engine/model_runner.h"
#include "engine/request_gateway.h"
#include "model_config/model_config.h"
#include "settings/settings.h"

namespace gimbal {

class EngineLoop;

class Engine {
 public:
  // Loads weights, takes memory, computes one token to prove that the model runs, then starts the loop. Blocking.
  static Result<std::unique_ptr<Engine>> start(const Settings& settings, const ModelConfig& config);
  ~Engine();

  RequestGateway& gateway();
  const EngineDescription& description() const { return runner_->description(); }

  // Ends what is in flight with FinishReason::kAbort and joins the loop. May be called twice.
  void stop();

 private:
  explicit Engine(std::unique_ptr<ModelRunner> runner);
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<EngineLoop> loop_;
};

}  // namespace gimbal
