// ModelRunner: one rank's model, its KV pages and threads; executes its part of step plans.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_team.h"
#include "checkpoint/checkpoint.h"
#include "comm/host_comm.h"
#include "engine/execution_plan.h"
#include "engine/rank_messages.h"
#include "engine/step_result.h"
#include "kv_cache/kv_storage.h"
#include "model/deepseek_v3/decoder.h"
#include "model/deepseek_v3/weights.h"
#include "model/rank_context.h"
#include "model_config/model_config.h"
#include "scheduler/step_plan.h"

namespace gimbal {

struct ModelRunnerInputs {
  const ExecutionPlan* plan = nullptr;  // not owned; must outlive the runner, as the config
  const ModelConfig* config = nullptr;
  std::shared_ptr<const Checkpoint> checkpoint;
  int64_t rank = 0;
};

class ModelRunner {
 public:
  // Binds the rank's weights and takes its memory, agrees with all ranks of `host` that each of them could (else every
  // rank returns the first error), then makes the exchange windows of the stage together with its peers.
  static Result<std::unique_ptr<ModelRunner>> load(const ModelRunnerInputs& inputs, HostComm& host, RankComms comms);

  // Computes the rank's part of the plan; collective. The result holds the sequences of the rank's DP group when it is
  // the one that reports for the group. One step at a time.
  Result<std::optional<StepResult>> run(const StepPlan& plan);

  RankReport report() const;
  const CommState& comm_state() const { return rank_.comms.world->state(); }
  const DecoderWeights& weights() const { return weights_; }

 private:
  ModelRunner(const ModelRunnerInputs& inputs, RankContext rank, DecoderWeights weights, KvStorage cache);
  void move_pages(const StepPlan& plan);
  SequenceResult score_sequence(const PlannedSequence& planned, std::span<const float> logits);
  void sample(const PlannedSequence& planned, std::span<const float> logits, SequenceResult& result);
  bool reports() const;

  const ExecutionPlan& plan_;
  const ModelConfig& config_;
  RankContext rank_;
  DecoderWeights weights_;
  KvStorage cache_;
  std::unique_ptr<ThreadTeam> team_;
  OpContext op_context_;
  std::unique_ptr<Decoder> decoder_;
  std::vector<float> logits_;           // [num_logit_rows][vocab_size]
  std::vector<float> adjusted_logits_;  // [vocab_size]
};

}  // namespace gimbal
