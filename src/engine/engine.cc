#include "engine/engine.h"

#include "engine/engine_loop.h"

namespace gimbal {
namespace {

// One token through all layers of every DP group: touches every kind of weight and every exchange, and shows that the
// numbers are numbers.
Status compute_first_token(RankExecutor& executor) {
  StepPlan plan;
  for (int64_t group = 0; group < executor.plan().layout.attention_dp; ++group) {
    plan.sequences.push_back({.sequence_id = 0,
                              .dp_group = static_cast<int32_t>(group),
                              .token_ids = {0},
                              .first_position = 0,
                              .pages = {0},
                              .is_prefill = true,
                              .logit_rows = LogitRows::kLast,
                              .wants_token = true,
                              .sampling = SamplingPlan{}});
  }
  GIMBAL_ASSIGN_OR_RETURN(const StepResult result, executor.run(plan));
  for (const SequenceResult& sequence : result.sequences) {
    if (!sequence.is_finite) {
      return fail(Error::failed(
          "The first token's logits are not finite: the weights are damaged or the machine computes wrongly. "
          "Check the files with `gimbal check` and compare --op-backend reference."));
    }
  }
  return {};
}

}  // namespace

Engine::Engine(std::unique_ptr<RankExecutor> executor) : executor_(std::move(executor)) {}

Engine::~Engine() { stop(); }

Result<std::unique_ptr<Engine>> Engine::start(const Settings& settings, const ModelConfig& config, MpiSession* mpi) {
  GIMBAL_ASSIGN_OR_RETURN(std::unique_ptr<RankExecutor> executor, RankExecutor::start(settings, config, mpi));
  GIMBAL_RETURN_IF_ERROR(compute_first_token(*executor));
  std::unique_ptr<Engine> engine(new Engine(std::move(executor)));
  engine->loop_ = std::make_unique<EngineLoop>(
      *engine->executor_, EngineLoopOptions{.max_queued = settings.max_queued_requests,
                                            .priority_aging_ms = settings.priority_aging_ms,
                                            .finds_prefixes = !settings.disable_radix_cache,
                                            .soft_watchdog = std::chrono::milliseconds(
                                                static_cast<int64_t>(settings.soft_watchdog_timeout_s * 1000))});
  return engine;
}

RequestGateway& Engine::gateway() { return *loop_; }

void Engine::fail_all(const Error& error) { loop_->fail_all(error); }

void Engine::stop() {
  if (loop_) loop_->stop();
}

}  // namespace gimbal
