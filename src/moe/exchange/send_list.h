// SendList: which of a rank's tokens go to which rank of the stage, each once per rank.
#pragma once

#include <cstdint>
#include <vector>

#include "moe/exchange/token_exchange.h"

namespace gimbal {

struct SendList {
  std::vector<int64_t> token_begin;  // [stage_size + 1] sends of a destination
  std::vector<int32_t> tokens;       // [num_sends] own token
  std::vector<int64_t> pair_begin;   // [stage_size + 1] pairs of a destination
  std::vector<ExpertPair> pairs;     // [num_pairs]; row counts from the destination's first send
  // Where the parts of an own pair are computed: rank of the stage and number of the pair among those sent to it.
  struct Place {
    int32_t rank = 0;
    int64_t index = 0;
  };
  std::vector<Place> places;  // [num_tokens * experts_per_token][expert_tp]

  int64_t num_tokens(size_t destination) const { return token_begin[destination + 1] - token_begin[destination]; }
  int64_t num_pairs(size_t destination) const { return pair_begin[destination + 1] - pair_begin[destination]; }
};

SendList make_send_list(const TokenMajorBatch& batch, const ExchangeShape& shape);

// Sums over destinations other than `self` of what a send list moves.
void count_sends(const SendList& list, const ExchangeShape& shape, int self, ExchangeCounters& counters);
// The same for what is returned to the sources of `received`.
void count_returns(const ReceivedTokens& received, const ExchangeShape& shape, int self, ExchangeCounters& counters);

}  // namespace gimbal
