#include "engine/model_runner.h"

#include <chrono>

#include <fmt/format.h>

#include "base/machine_limits.h"
#include "checkpoint/checkpoint.h"
#include "engine/memory_plan.h"

namespace gimbal {
namespace {

struct ChosenBackends {
  BackendRecord<OpBackend> ops;
  BackendRecord<AttentionBackend> attention;
  BackendRecord<ExpertRunnerKind> experts;
};

Result<ChosenBackends> choose_backends(const Settings& settings) {
  GIMBAL_ASSIGN_OR_RETURN(const auto ops, choose_backend("--op-backend", settings.op_backend, op_backends()));
  GIMBAL_ASSIGN_OR_RETURN(const auto attention,
                          choose_backend("--attention-backend", settings.attention_backend, attention_backends()));
  GIMBAL_ASSIGN_OR_RETURN(const auto experts,
                          choose_backend("--moe-runner-backend", settings.moe_runner_backend, expert_runners()));
  return ChosenBackends{ops, attention, experts};
}

Result<Checkpoint> open_checkpoint(const Settings& settings, const ModelConfig& config, int num_threads) {
  if (settings.load_format == "dummy")
    return Checkpoint::make_dummy(config, static_cast<uint64_t>(settings.weight_seed), num_threads);
  return Checkpoint::open(settings.model_path, config);
}

}  // namespace

ModelRunner::ModelRunner(const ModelConfig& config, DecoderWeights weights, KvStorage cache)
    : config_(config), weights_(std::move(weights)), cache_(std::move(cache)) {}

Result<std::unique_ptr<ModelRunner>> ModelRunner::load(const Settings& settings, const ModelConfig& config) {
  const auto start = std::chrono::steady_clock::now();
  GIMBAL_ASSIGN_OR_RETURN(const ChosenBackends backends, choose_backends(settings));
  const MachineLimits machine = read_machine_limits();
  const int num_threads = settings.num_threads > 0 ? static_cast<int>(settings.num_threads) : machine.num_cpus;
  if (settings.load_format == "dummy") {  // memory is taken at once, so ask first
    GIMBAL_RETURN_IF_ERROR(plan_memory(settings, config, make_weight_plan(config).total_bytes, machine));
  }
  GIMBAL_ASSIGN_OR_RETURN(Checkpoint checkpoint, open_checkpoint(settings, config, num_threads));
  GIMBAL_ASSIGN_OR_RETURN(const MemoryPlan memory,
                          plan_memory(settings, config, checkpoint.plan().total_bytes, machine));
  GIMBAL_ASSIGN_OR_RETURN(DecoderWeights weights, DecoderWeights::load(std::move(checkpoint), config));
  GIMBAL_ASSIGN_OR_RETURN(KvStorage cache, KvStorage::allocate({.num_layers = config.num_layers,
                                                                .num_pages = memory.num_pages,
                                                                .page_size = settings.page_size,
                                                                .width = config.kv_cache_width()}));

  std::unique_ptr<ModelRunner> runner(new ModelRunner(config, std::move(weights), std::move(cache)));
  runner->team_ = std::make_unique<ThreadTeam>(num_threads);
  runner->op_context_ = {.backend = backends.ops.kind, .team = runner->team_.get()};
  runner->is_deterministic_ = settings.deterministic;
  const DecoderContext context{.ops = runner->op_context_,
                               .attention = {.backend = backends.attention.kind, .team = runner->team_.get()},
                               .experts = {.kind = backends.experts.kind, .team = runner->team_.get()}};
  const double latent_norm_eps = settings.latent_norm_eps > 0 ? settings.latent_norm_eps : config.rms_norm_eps;
  runner->decoder_ = std::make_unique<Decoder>(runner->config_, runner->weights_, context, latent_norm_eps);
  runner->description_ = {
      .context_length = memory.context_length,
      .kv_tokens = memory.num_pages * settings.page_size,
      .page_size = settings.page_size,
      .max_running = memory.max_running,
      .tokens_per_step = memory.tokens_per_step,
      .num_threads = num_threads,
      .weight_bytes = memory.weight_bytes,
      .kv_bytes = memory.kv_bytes,
      .workspace_bytes = memory.workspace_bytes,
      .op_backend = std::string(backends.ops.name),
      .attention_backend = std::string(backends.attention.name),
      .moe_runner_backend = std::string(backends.experts.name),
      .load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
      .notes = config.notes};
  auto& notes = runner->description_.notes;
  notes.insert(notes.end(), runner->weights_.notes().begin(), runner->weights_.notes().end());
  notes.insert(notes.end(), memory.notes.begin(), memory.notes.end());
  if (settings.num_threads <= 0) notes.push_back(fmt::format("threads: {} (from {})", num_threads, machine.cpus_from));
  return runner;
}

std::span<const float> ModelRunner::run(const StepPlan& plan, const HiddenObserver& observer) {
  std::vector<int32_t> token_ids;
  std::vector<int64_t> positions;
  std::vector<int64_t> logit_rows;
  std::vector<AttentionSequence> sequences;
  for (const PlannedSequence& planned : plan.sequences) {
    const auto first_row = static_cast<int64_t>(token_ids.size());
    const auto num_rows = static_cast<int64_t>(planned.token_ids.size());
    // Expanded and absorbed attention differ in rounding, so the form follows the kind of token, never the shape of the
    // step; the deterministic mode knows one form only.
    const bool is_expanded = planned.is_prefill && !is_deterministic_;
    sequences.push_back({.first_row = first_row,
                         .num_rows = num_rows,
                         .first_position = planned.first_position,
                         .pages = planned.pages,
                         .form = is_expanded ? AttentionForm::kExpanded : AttentionForm::kAbsorbed});
    token_ids.insert(token_ids.end(), planned.token_ids.begin(), planned.token_ids.end());
    for (int64_t row = 0; row < num_rows; ++row) {
      positions.push_back(planned.first_position + row);
      const bool is_last = row + 1 == num_rows;
      if (planned.logit_rows == LogitRows::kAll || (planned.logit_rows == LogitRows::kLast && is_last))
        logit_rows.push_back(first_row + row);
    }
  }
  logits_.resize(logit_rows.size() * static_cast<size_t>(config_.vocab_size));
  decoder_->forward({.token_ids = token_ids, .positions = positions, .sequences = sequences, .logit_rows = logit_rows},
                    cache_, logits_.data(), observer);
  return logits_;
}

}  // namespace gimbal
