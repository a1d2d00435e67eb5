#include "engine/model_runner.h"

#include "ops/logit_adjustment.h"
#include "ops/logit_statistics.h"
#include "ops/sampling.h"
#include "parallel/rank_weight_plan.h"

namespace gimbal {
namespace {

// The rows of one DP group in a plan.
struct GroupRows {
  std::vector<int32_t> token_ids;
  std::vector<int64_t> positions;
  std::vector<int64_t> logit_rows;
  std::vector<AttentionSequence> sequences;
};

int64_t num_logit_rows(const PlannedSequence& planned) {
  switch (planned.logit_rows) {
    case LogitRows::kNone:
      return 0;
    case LogitRows::kLast:
      return 1;
    case LogitRows::kAll:
      break;
  }
  return static_cast<int64_t>(planned.token_ids.size());
}

void add_sequence(const PlannedSequence& planned, AttentionForm form, GroupRows& rows) {
  const auto first_row = static_cast<int64_t>(rows.token_ids.size());
  const auto num_rows = static_cast<int64_t>(planned.token_ids.size());
  rows.sequences.push_back({.first_row = first_row,
                            .num_rows = num_rows,
                            .first_position = planned.first_position,
                            .pages = planned.pages,
                            .form = form});
  rows.token_ids.insert(rows.token_ids.end(), planned.token_ids.begin(), planned.token_ids.end());
  for (int64_t row = 0; row < num_rows; ++row) rows.positions.push_back(planned.first_position + row);
  for (int64_t row = num_rows - num_logit_rows(planned); row < num_rows; ++row)
    rows.logit_rows.push_back(first_row + row);
}

// Expanded and absorbed attention differ in rounding, so the form follows the kind of token, never the shape of the
// step; the deterministic mode knows one form only.
GroupRows rows_of_group(const StepPlan& plan, int64_t group, bool is_deterministic) {
  GroupRows rows;
  for (const PlannedSequence& planned : plan.sequences) {
    if (planned.dp_group != group) continue;
    const bool is_expanded = planned.is_prefill && !is_deterministic;
    add_sequence(planned, is_expanded ? AttentionForm::kExpanded : AttentionForm::kAbsorbed, rows);
  }
  return rows;
}

}  // namespace

ModelRunner::ModelRunner(const ModelRunnerInputs& inputs, RankContext rank, DecoderWeights weights, KvStorage cache)
    : plan_(*inputs.plan),
      config_(*inputs.config),
      rank_(std::move(rank)),
      weights_(std::move(weights)),
      cache_(std::move(cache)),
      team_(std::make_unique<ThreadTeam>(inputs.plan->num_threads_per_rank)),
      op_context_{.backend = inputs.plan->ops.kind, .team = team_.get()} {
  const DecoderContext context{.ops = op_context_,
                               .attention = {.backend = plan_.attention.kind, .team = team_.get()},
                               .experts = {.kind = plan_.experts.kind, .team = team_.get()}};
  decoder_ = std::make_unique<Decoder>(config_, weights_, &rank_, context, plan_.latent_norm_eps);
}

Result<std::unique_ptr<ModelRunner>> ModelRunner::load(const ModelRunnerInputs& inputs, HostComm& host,
                                                       RankComms comms) {
  const ExecutionPlan& plan = *inputs.plan;
  const ModelConfig& config = *inputs.config;
  const RankWeightPlan held = make_rank_weight_plan({.plan = &inputs.checkpoint->plan(),
                                                     .config = &config,
                                                     .layout = &plan.layout,
                                                     .placement = plan.placement.get()},
                                                    inputs.rank);
  Result<DecoderWeights> weights = DecoderWeights::load(inputs.checkpoint, config, held);
  Result<KvStorage> cache = KvStorage::allocate({.num_layers = held.layers.size(),
                                                 .num_pages = plan.memory.num_pages,
                                                 .page_size = plan.page_size,
                                                 .width = config.kv_cache_width(),
                                                 .num_host_pages = plan.memory.num_host_pages});
  Status own;
  if (!weights) {
    own = fail(weights.error());
  } else if (!cache) {
    own = fail(cache.error());
  }
  GIMBAL_RETURN_IF_ERROR(agree(host, own));
  GIMBAL_ASSIGN_OR_RETURN(RankContext rank, make_rank_context({.config = &config,
                                                               .layout = plan.layout,
                                                               .placement = plan.placement,
                                                               .rank = inputs.rank,
                                                               .layers = held.layers,
                                                               .low_latency_tokens = plan.memory.low_latency_tokens,
                                                               .copy_choice = plan.copy_choice},
                                                              std::move(comms)));
  return std::unique_ptr<ModelRunner>(new ModelRunner(inputs, std::move(rank), std::move(*weights), std::move(*cache)));
}

bool ModelRunner::reports() const { return rank_.is_last_stage() && rank_.at.attention_tp_rank == 0; }

Result<std::optional<StepResult>> ModelRunner::run(const StepPlan& plan) {
  ++rank_.times.steps;
  const ComponentTimer timer(rank_.times.total_s);
  move_pages(plan);
  const GroupRows rows = rows_of_group(plan, rank_.at.dp_group, plan_.is_deterministic);
  const std::vector<int64_t> group_rows = plan.group_rows(rank_.layout.attention_dp);
  if (rank_.is_last_stage()) logits_.resize(rows.logit_rows.size() * static_cast<size_t>(config_.vocab_size));
  GIMBAL_RETURN_IF_ERROR(
      decoder_->forward({.step = plan.step,
                         .group_rows = group_rows,
                         .is_low_latency = is_low_latency_step(plan, rank_.layout, plan_.memory.low_latency_tokens),
                         .token_ids = rows.token_ids,
                         .positions = rows.positions,
                         .sequences = rows.sequences,
                         .logit_rows = rows.logit_rows},
                        cache_, logits_.data()));
  if (!reports()) return std::nullopt;
  StepResult result{.step = plan.step, .sequences = {}};
  std::span<const float> logits = logits_;
  for (const PlannedSequence& planned : plan.sequences) {
    if (planned.dp_group != rank_.at.dp_group || planned.logit_rows == LogitRows::kNone) continue;
    const size_t count = static_cast<size_t>(num_logit_rows(planned) * config_.vocab_size);
    result.sequences.push_back(score_sequence(planned, logits.first(count)));
    logits = logits.subspan(count);
  }
  return result;
}

void ModelRunner::move_pages(const StepPlan& plan) {
  for (const PageMove& move : plan.moves) {
    if (move.dp_group != rank_.at.dp_group) continue;
    switch (move.kind) {
      case PageMove::Kind::kToHost:
        cache_.page_to_host(move.from, move.to);
        break;
      case PageMove::Kind::kToDevice:
        cache_.page_to_device(move.from, move.to);
        break;
      case PageMove::Kind::kCopy:
        cache_.copy_page(move.from, move.to);
        break;
    }
  }
}

SequenceResult ModelRunner::score_sequence(const PlannedSequence& planned, std::span<const float> logits) {
  const ComponentTimer timer(rank_.times.sampling_s);
  const auto vocab_size = static_cast<size_t>(config_.vocab_size);
  SequenceResult result{.sequence_id = planned.sequence_id};
  const bool wants_scores = planned.num_top_logits > 0 || !planned.target_ids.empty();
  for (size_t row = 0; wants_scores && row * vocab_size < logits.size(); ++row) {
    const std::span<const float> row_logits = logits.subspan(row * vocab_size, vocab_size);
    RowScore score{.top = top_logits(row_logits, planned.num_top_logits), .log_sum_exp = log_sum_exp(row_logits)};
    if (row < planned.target_ids.size() && planned.target_ids[row] >= 0) {
      score.log_probability =
          static_cast<double>(row_logits[static_cast<size_t>(planned.target_ids[row])]) - score.log_sum_exp;
    }
    result.rows.push_back(std::move(score));
  }
  if (planned.sampling) sample(planned, logits.last(vocab_size), result);
  return result;
}

void ModelRunner::sample(const PlannedSequence& planned, std::span<const float> logits, SequenceResult& result) {
  const SamplingPlan& how = *planned.sampling;
  std::span<const float> adjusted = logits;
  const LogitAdjustmentArgs adjustment{.biases = how.biases,
                                       .seen = how.seen,
                                       .repetition_penalty = how.repetition_penalty,
                                       .frequency_penalty = how.frequency_penalty,
                                       .presence_penalty = how.presence_penalty};
  if (!adjustment.biases.empty() || !adjustment.seen.empty()) {
    adjusted_logits_.assign(logits.begin(), logits.end());
    logit_adjustment(adjustment, adjusted_logits_);
    adjusted = adjusted_logits_;
  }
  result.token_id = sampling({.logits = adjusted,
                              .temperature = how.temperature,
                              .top_k = how.top_k,
                              .top_p = how.top_p,
                              .min_p = how.min_p,
                              .seed = how.seed,
                              .position = how.position,
                              .forbidden_ids = how.forbidden_ids},
                             op_context_);
  result.is_finite = result.token_id.has_value();
  if (planned.wants_log_probability && result.token_id)
    result.log_probability = static_cast<double>(logits[static_cast<size_t>(*result.token_id)]) - log_sum_exp(logits);
}

RankReport ModelRunner::report() const {
  RankReport report;
  report.expert_load.assign(static_cast<size_t>(config_.num_layers),
                            std::vector<uint64_t>(static_cast<size_t>(config_.num_experts), 0));
  for (size_t layer = 0; layer < rank_.expert_load.size(); ++layer)
    report.expert_load[static_cast<size_t>(rank_.layers.begin) + layer] = rank_.expert_load[layer];
  for (const TokenExchange* exchange : {rank_.exchange.get(), rank_.low_latency_exchange.get()}) {
    if (exchange == nullptr) continue;
    const ExchangeCounters& counters = exchange->counters();
    report.exchange.rows_sent += counters.rows_sent;
    report.exchange.rows_returned += counters.rows_returned;
    report.exchange.row_bytes += counters.row_bytes;
    report.exchange.metadata_bytes += counters.metadata_bytes;
    report.exchange.normal_dispatches += counters.normal_dispatches;
    report.exchange.low_latency_dispatches += counters.low_latency_dispatches;
  }
  const CommState& state = rank_.comms.world->state();
  report.comm_bytes.assign(state.bytes.begin(), state.bytes.end());
  report.comm_seconds.assign(state.seconds.begin(), state.seconds.end());
  report.times = rank_.times;
  return report;
}

}  // namespace gimbal
