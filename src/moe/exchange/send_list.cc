#include "moe/exchange/send_list.h"

#include "base/check.h"

namespace gimbal {

SendList make_send_list(const TokenMajorBatch& batch, const ExchangeShape& shape) {
  const auto stage_size = static_cast<size_t>(shape.stage_size());
  const auto expert_tp = static_cast<size_t>(shape.expert_tp);
  std::vector<std::vector<int32_t>> tokens(stage_size);
  std::vector<std::vector<ExpertPair>> pairs(stage_size);
  SendList list;
  list.places.resize(batch.expert_ids.size() * expert_tp);
  for (size_t pair = 0; pair < batch.expert_ids.size(); ++pair) {
    const auto token = static_cast<int32_t>(static_cast<int64_t>(pair) / batch.experts_per_token);
    const int64_t slot = batch.expert_ids[pair];
    GIMBAL_CHECK(slot >= 0 && slot < shape.expert_parallel * shape.slots_per_rank);
    const auto first_rank = static_cast<size_t>(slot / shape.slots_per_rank) * expert_tp;
    for (size_t part = 0; part < expert_tp; ++part) {
      const size_t rank = first_rank + part;
      if (tokens[rank].empty() || tokens[rank].back() != token) tokens[rank].push_back(token);
      list.places[pair * expert_tp + part] = {static_cast<int32_t>(rank), static_cast<int64_t>(pairs[rank].size())};
      pairs[rank].push_back({.row = static_cast<int32_t>(tokens[rank].size()) - 1,
                             .local_slot = static_cast<int32_t>(slot % shape.slots_per_rank),
                             .source_pair = static_cast<int32_t>(pair)});
    }
  }
  list.token_begin.push_back(0);
  list.pair_begin.push_back(0);
  for (size_t rank = 0; rank < stage_size; ++rank) {
    list.tokens.insert(list.tokens.end(), tokens[rank].begin(), tokens[rank].end());
    list.pairs.insert(list.pairs.end(), pairs[rank].begin(), pairs[rank].end());
    list.token_begin.push_back(static_cast<int64_t>(list.tokens.size()));
    list.pair_begin.push_back(static_cast<int64_t>(list.pairs.size()));
  }
  return list;
}

void count_sends(const SendList& list, const ExchangeShape& shape, int self, ExchangeCounters& counters) {
  const auto own = static_cast<size_t>(self);
  const auto rows = static_cast<uint64_t>(list.token_begin.back() - list.num_tokens(own));
  const auto pairs = static_cast<uint64_t>(list.pair_begin.back() - list.num_pairs(own));
  counters.rows_sent += rows;
  counters.row_bytes += rows * static_cast<uint64_t>(shape.hidden_size) * sizeof(float);
  // Per peer the two counts, per pair its row, slot and number.
  counters.metadata_bytes +=
      static_cast<uint64_t>(shape.stage_size() - 1) * 2 * sizeof(int64_t) + pairs * sizeof(ExpertPair);
}

void count_returns(const ReceivedTokens& received, const ExchangeShape& shape, int self, ExchangeCounters& counters) {
  const auto own = static_cast<size_t>(self);
  const auto rows =
      static_cast<uint64_t>(received.pair_begin.back() - (received.pair_begin[own + 1] - received.pair_begin[own]));
  counters.rows_returned += rows;
  counters.row_bytes += rows * static_cast<uint64_t>(shape.hidden_size) * sizeof(float);
}

}  // namespace gimbal
