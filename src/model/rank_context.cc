#include "model/rank_context.h"

#include <numeric>
#include <utility>

namespace gimbal {

std::vector<int64_t> RankContext::piece_rows(int64_t num_rows) const {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < layout.attention_tp; ++i) rows.push_back(even_part(num_rows, layout.attention_tp, i).size());
  return rows;
}

ExpertPlacementShape placement_shape(const ModelConfig& config, const ParallelLayout& layout, int64_t num_redundant) {
  return {.num_layers = config.num_layers,
          .num_experts = config.num_experts,
          .num_redundant = num_redundant,
          .num_ranks = layout.expert_parallel};
}

ExchangeShape exchange_shape(const ModelConfig& config, const ParallelLayout& layout, int64_t slots_per_rank,
                             int64_t low_latency_tokens) {
  return {.hidden_size = config.hidden_size,
          .experts_per_token = config.num_experts_per_token,
          .slots_per_rank = slots_per_rank,
          .expert_parallel = layout.expert_parallel,
          .expert_tp = layout.expert_tp,
          .low_latency_tokens = low_latency_tokens};
}

Result<RankContext> make_rank_context(const RankContextInputs& inputs, RankComms comms) {
  const ParallelLayout& layout = inputs.layout;
  RankContext context{.rank = inputs.rank,
                      .layout = layout,
                      .at = coordinates_of(layout, inputs.rank),
                      .layers = inputs.layers,
                      .placement = inputs.placement,
                      .copy_choice = {},
                      .comms = std::move(comms),
                      .exchange = nullptr,
                      .low_latency_exchange = nullptr,
                      .expert_load = {}};
  context.copy_choice = {.kind = inputs.copy_choice, .expert_rank = context.at.expert_rank};
  context.expert_load.assign(static_cast<size_t>(inputs.layers.size()),
                             std::vector<uint64_t>(static_cast<size_t>(inputs.config->num_experts), 0));
  const ExchangeShape shape =
      exchange_shape(*inputs.config, layout, inputs.placement->shape().slots_per_rank(), inputs.low_latency_tokens);
  DeviceComm* stage = context.comms.stage.get();
  switch (layout.exchange) {
    case ExchangeKind::kNone:
      context.exchange = make_exchange_none(shape, stage->rank());
      return context;
    case ExchangeKind::kDirect:
      context.exchange = make_exchange_direct(shape, stage);
      break;
    case ExchangeKind::kMpi:
      context.exchange = make_exchange_mpi(shape, stage);
      break;
  }
  if (inputs.low_latency_tokens > 0) {
    GIMBAL_ASSIGN_OR_RETURN(context.low_latency_exchange, make_exchange_low_latency(shape, stage));
  }
  return context;
}

RankComms make_thread_comms(InProcessWorld& world, const ParallelLayout& layout, int64_t rank) {
  std::vector<int> everybody(static_cast<size_t>(layout.world_size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  const int own = static_cast<int>(rank);
  return {.state = nullptr,
          .world = world.device_comm(own, everybody, "world"),
          .stage = world.device_comm(own, stage_group(layout, coordinates_of(layout, rank).stage), "stage"),
          .attention_tp = world.device_comm(own, attention_tp_group(layout, rank), "attention_tp")};
}

RankContext make_single_rank_context(const ModelConfig& config) {
  const ParallelLayout layout;
  const auto world = InProcessWorld::create(1, std::chrono::milliseconds(1000));
  auto placement = std::make_shared<const ExpertPlacement>(
      ExpertPlacement::trivial(placement_shape(config, layout, /*num_redundant=*/0)));
  Result<RankContext> context = make_rank_context({.config = &config,
                                                   .layout = layout,
                                                   .placement = std::move(placement),
                                                   .rank = 0,
                                                   .layers = {0, config.num_layers}},
                                                  make_thread_comms(*world, layout, 0));
  return std::move(*context);  // cannot fail: nothing is collective
}

}  // namespace gimbal
