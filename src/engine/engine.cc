#include "engine/engine.h"

#include <cmath>

#include "engine/engine_loop.h"

namespace gimbal {
namespace {

// One token through all layers: touches every kind of weight and shows that the numbers are numbers.
Status compute_first_token(ModelRunner& runner) {
  PlannedSequence sequence{.sequence_id = 0,
                           .token_ids = {0},
                           .first_position = 0,
                           .pages = {0},
                           .is_prefill = true,
                           .logit_rows = LogitRows::kLast};
  const std::span<const float> logits = runner.run({.step = 0, .sequences = {std::move(sequence)}});
  for (const float logit : logits) {
    if (!std::isfinite(logit)) {
      return fail(Error::failed(
          "The first token's logits are not finite: the weights are damaged or the machine computes wrongly. "
          "Check the files with `gimbal check` and compare --op-backend reference."));
    }
  }
  return {};
}

}  // namespace

Engine::Engine(std::unique_ptr<ModelRunner> runner) : runner_(std::move(runner)) {}

Engine::~Engine() { stop(); }

Result<std::unique_ptr<Engine>> Engine::start(const Settings& settings, const ModelConfig& config) {
  GIMBAL_ASSIGN_OR_RETURN(std::unique_ptr<ModelRunner> runner, ModelRunner::load(settings, config));
  GIMBAL_RETURN_IF_ERROR(compute_first_token(*runner));
  std::unique_ptr<Engine> engine(new Engine(std::move(runner)));
  engine->loop_ = std::make_unique<EngineLoop>(*engine->runner_, settings.max_queued_requests);
  return engine;
}

RequestGateway& Engine::gateway() { return *loop_; }

void Engine::stop() {
  if (loop_) loop_->stop();
}

}  // namespace gimbal
