#include "model/deepseek_v3/moe_layer.h"

#include <numeric>

#include "model/deepseek_v3/dense_mlp.h"
#include "moe/routing/expert_router.h"
#include "ops/matmul.h"
#include "ops/residual_add.h"

namespace gimbal {
namespace {

// Token rows that this rank routes.
struct Rows {
  const float* x = nullptr;  // [count][hidden_size]
  int64_t count = 0;
};

class MoeLayer {
 public:
  MoeLayer(const MoeLayerArgs& args, const DecoderContext& context, DecoderWorkspace& workspace)
      : args_(args),
        config_(*args.config),
        rank_(*args.rank),
        context_(context),
        workspace_(workspace),
        num_rows_(args.batch->num_rows()),
        piece_(even_part(num_rows_, rank_.layout.attention_tp, rank_.at.attention_tp_rank)) {}

  Status run() {
    if (rank_.layout.exchange != ExchangeKind::kNone) return run_exchanged();
    return rank_.layout.attention_dp == 1 ? run_replicated() : run_gathered();
  }

 private:
  // Every rank has all rows. The shared expert's slices join the routed sums in one all_reduce.
  Status run_replicated() {
    GIMBAL_RETURN_IF_ERROR(route_and_run({workspace_.normed.data(), num_rows_}, workspace_.block_output.data()));
    const bool is_shared_sliced = args_.weights->shared && rank_.layout.dense_tp > 1;
    if (is_shared_sliced) add_shared({workspace_.normed.data(), num_rows_}, workspace_.block_output.data());
    GIMBAL_RETURN_IF_ERROR(rank_.comms.stage->all_reduce(workspace_.block_output));
    if (args_.weights->shared && !is_shared_sliced)
      add_shared({workspace_.normed.data(), num_rows_}, workspace_.block_output.data());
    return {};
  }

  Status run_gathered() {
    std::vector<int64_t> counts = stage_piece_values();
    const auto total = static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
    workspace_.stage_rows.resize(total);
    workspace_.stage_output.resize(total);
    GIMBAL_RETURN_IF_ERROR(rank_.comms.stage->all_gather(own_piece(workspace_.normed), counts, workspace_.stage_rows));
    const auto rows = static_cast<int64_t>(total) / config_.hidden_size;
    GIMBAL_RETURN_IF_ERROR(route_and_run({workspace_.stage_rows.data(), rows}, workspace_.stage_output.data()));
    workspace_.piece_output.resize(static_cast<size_t>(piece_.size() * config_.hidden_size));
    GIMBAL_RETURN_IF_ERROR(rank_.comms.stage->reduce_scatter(workspace_.stage_output, counts, workspace_.piece_output));
    return finish_piece();
  }

  Status run_exchanged() {
    workspace_.piece_output.resize(static_cast<size_t>(piece_.size() * config_.hidden_size));
    GIMBAL_RETURN_IF_ERROR(
        route_and_run({own_piece(workspace_.normed).data(), piece_.size()}, workspace_.piece_output.data()));
    return finish_piece();
  }

  // Adds the shared expert to the own piece, then gives every rank of the group all rows.
  Status finish_piece() {
    if (args_.weights->shared) {
      if (rank_.layout.dense_tp == 1) {
        add_shared({own_piece(workspace_.normed).data(), piece_.size()}, workspace_.piece_output.data());
      } else {
        GIMBAL_RETURN_IF_ERROR(add_sliced_shared());
      }
    }
    return rank_.comms.attention_tp->all_gather(workspace_.piece_output, group_piece_values(), workspace_.block_output);
  }

  Status add_sliced_shared() {
    dense_mlp({.weights = &*args_.weights->shared,
               .x = workspace_.normed.data(),
               .num_rows = num_rows_,
               .y = workspace_.block_output.data()},
              context_.ops, workspace_);
    workspace_.shared_output.resize(workspace_.piece_output.size());
    GIMBAL_RETURN_IF_ERROR(rank_.comms.attention_tp->reduce_scatter(workspace_.block_output, group_piece_values(),
                                                                    workspace_.shared_output));
    residual_add({.x = workspace_.piece_output.data(),
                  .y = workspace_.shared_output.data(),
                  .count = piece_.size() * config_.hidden_size},
                 context_.ops);
    return {};
  }

  void add_shared(const Rows& rows, float* y) {
    workspace_.shared_output.resize(static_cast<size_t>(rows.count * config_.hidden_size));
    dense_mlp(
        {.weights = &*args_.weights->shared, .x = rows.x, .num_rows = rows.count, .y = workspace_.shared_output.data()},
        context_.ops, workspace_);
    residual_add({.x = y, .y = workspace_.shared_output.data(), .count = rows.count * config_.hidden_size},
                 context_.ops);
  }

  // y [rows.count][hidden_size] becomes the routed experts' sum, or this rank's share of it.
  Status route_and_run(const Rows& rows, float* y) {
    route_rows(rows);
    count_load();
    choose_copies(*rank_.placement, rank_.layers.begin + args_.layer, rank_.copy_choice, workspace_.routed);
    TokenExchange& exchange = args_.batch->is_low_latency ? *rank_.low_latency_exchange : *rank_.exchange;
    const OwnTokens own{.batch = &workspace_.routed, .rows = rows.x};
    GIMBAL_RETURN_IF_ERROR(exchange.dispatch(own, workspace_.received));
    const ExpertMajorBatch batch =
        sort_by_expert(workspace_.received.pairs, static_cast<int64_t>(args_.weights->experts.size()));
    const auto num_pairs = static_cast<size_t>(batch.num_rows());
    const auto hidden_size = static_cast<size_t>(config_.hidden_size);
    const auto width = static_cast<size_t>(args_.weights->experts.front().gate.rows);
    workspace_.expert_rows.resize(num_pairs * hidden_size);
    workspace_.expert_output.resize(num_pairs * hidden_size);
    workspace_.expert_intermediate.resize(num_pairs * 2 * width);
    gather_rows(batch, workspace_.received.rows, config_.hidden_size, workspace_.expert_rows.data());
    run_experts({.experts = args_.weights->experts,
                 .batch = &batch,
                 .x = workspace_.expert_rows.data(),
                 .intermediate = workspace_.expert_intermediate.data(),
                 .y = workspace_.expert_output.data()},
                context_.experts);
    return exchange.combine(own, {.rows = workspace_.expert_output.data(), .pair_row = batch.pair_row}, y);
  }

  void route_rows(const Rows& rows) {
    workspace_.router_scores.resize(static_cast<size_t>(rows.count * config_.num_experts));
    matmul({.x = rows.x,
            .num_rows = rows.count,
            .x_stride = config_.hidden_size,
            .weight = args_.weights->router,
            .y = workspace_.router_scores.data(),
            .y_stride = config_.num_experts},
           context_.ops);
    const RouterArgs router{.scores = workspace_.router_scores.data(),
                            .bias = args_.weights->router_bias.data(),
                            .num_tokens = rows.count,
                            .num_experts = config_.num_experts,
                            .experts_per_token = config_.num_experts_per_token,
                            .num_groups = config_.num_expert_groups,
                            .num_topk_groups = config_.num_topk_groups,
                            .normalize = config_.normalize_topk_prob,
                            .scaling_factor = static_cast<float>(config_.routed_scaling_factor)};
    if (context_.ops.backend == OpBackend::kReference) return route_reference(router, workspace_.routed);
    route(router, workspace_.routed);
  }

  // With exchange none all ranks route the same tokens; the first counts them.
  void count_load() {
    if (rank_.layout.exchange == ExchangeKind::kNone && rank_.at.rank_in_stage != 0) return;
    std::vector<uint64_t>& load = rank_.expert_load[static_cast<size_t>(args_.layer)];
    for (const int32_t expert : workspace_.routed.expert_ids) ++load[static_cast<size_t>(expert)];
  }

  std::span<const float> own_piece(const std::vector<float>& rows) const {
    return std::span(rows).subspan(static_cast<size_t>(piece_.begin * config_.hidden_size),
                                   static_cast<size_t>(piece_.size() * config_.hidden_size));
  }

  // Values of every rank's piece: of the own attention group, and of the whole stage.
  std::vector<int64_t> group_piece_values() const {
    std::vector<int64_t> values = rank_.piece_rows(num_rows_);
    for (int64_t& value : values) value *= config_.hidden_size;
    return values;
  }
  std::vector<int64_t> stage_piece_values() const {
    std::vector<int64_t> values;
    for (const int64_t group_rows : args_.batch->group_rows) {
      for (const int64_t rows : rank_.piece_rows(group_rows)) values.push_back(rows * config_.hidden_size);
    }
    return values;
  }

  const MoeLayerArgs& args_;
  const ModelConfig& config_;
  RankContext& rank_;
  const DecoderContext& context_;
  DecoderWorkspace& workspace_;
  int64_t num_rows_;
  IndexRange piece_;  // of the group's rows that this rank routes
};

}  // namespace

Status moe_layer(const MoeLayerArgs& args, const DecoderContext& context, DecoderWorkspace& workspace) {
  return MoeLayer(args, context, workspace).run();
}

}  // namespace gimbal
