// ModelRunner: one rank's model, its KV pages and threads; executes step plans.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_team.h"
#include "kv_cache/kv_storage.h"
#include "model/deepseek_v3/decoder.h"
#include "model/deepseek_v3/weights.h"
#include "model_config/model_config.h"
#include "scheduler/step_plan.h"
#include "settings/settings.h"

namespace gimbal {

// What was decided and measured while loading; printed at start and shown by /server_info.
struct EngineDescription {
  int64_t context_length = 0;  // tokens of prompt and answer together
  int64_t kv_tokens = 0;       // tokens that the page pool holds
  int64_t page_size = 0;
  int64_t max_running = 0;
  int64_t tokens_per_step = 0;
  int64_t num_threads = 0;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t workspace_bytes = 0;
  std::string op_backend;
  std::string attention_backend;
  std::string moe_runner_backend;
  double load_seconds = 0;
  std::vector<std::string> notes;
};

class ModelRunner {
 public:
  // Decides threads and memory, refuses what cannot fit before a weight is read, then loads. Blocking.
  static Result<std::unique_ptr<ModelRunner>> load(const Settings& settings, const ModelConfig& config);

  const EngineDescription& description() const { return description_; }
  const ModelConfig& config() const { return config_; }

  // Computes the plan. The result holds one row of logits [vocab_size] per wanted row, in plan order, until the next
  // call. One step at a time.
  std::span<const float> run(const StepPlan& plan, const HiddenObserver& observer = {});

  // Samples from a row of logits with the runner's op backend.
  const OpContext& op_context() const { return op_context_; }

 private:
  ModelRunner(const ModelConfig& config, DecoderWeights weights, KvStorage cache);

  ModelConfig config_;
  EngineDescription description_;
  DecoderWeights weights_;
  KvStorage cache_;
  std::unique_ptr<ThreadTeam> team_;
  OpContext op_context_;
  std::unique_ptr<Decoder> decoder_;
  bool is_deterministic_ = false;
  std::vector<float> logits_;  // [num_logit_rows][vocab_size]
};

}  // namespace gimbal
