// Exchange none: every rank of the stage has all tokens; each computes what its experts serve.
#include "moe/exchange/token_exchange.h"

namespace gimbal {
namespace {

class ExchangeNone final : public TokenExchange {
 public:
  ExchangeNone(const ExchangeShape& shape, int stage_rank)
      : shape_(shape), expert_rank_(stage_rank / static_cast<int>(shape.expert_tp)) {}

  bool is_partial() const override { return shape_.stage_size() > 1; }

  Status dispatch(const OwnTokens& own, ReceivedTokens& received) override {
    received.rows = own.rows;
    received.pairs.clear();
    for (size_t pair = 0; pair < own.batch->expert_ids.size(); ++pair) {
      const int64_t slot = own.batch->expert_ids[pair];
      if (slot / shape_.slots_per_rank != expert_rank_) continue;
      const auto token = static_cast<int32_t>(static_cast<int64_t>(pair) / own.batch->experts_per_token);
      received.pairs.push_back({.row = token,
                                .local_slot = static_cast<int32_t>(slot % shape_.slots_per_rank),
                                .source_pair = static_cast<int32_t>(pair)});
    }
    received.pair_begin = {0, static_cast<int64_t>(received.pairs.size())};
    pairs_ = &received.pairs;
    return {};
  }

  Status combine(const OwnTokens& own, const ComputedPairs& computed, float* y) override {
    const int64_t hidden_size = shape_.hidden_size;
    std::fill(y, y + own.batch->num_tokens * hidden_size, 0.0f);
    for (size_t pair = 0; pair < pairs_->size(); ++pair) {  // by token, then slot
      const ExpertPair& received = (*pairs_)[pair];
      const float weight = own.batch->weights[static_cast<size_t>(received.source_pair)];
      const float* row = computed.rows + computed.pair_row[pair] * hidden_size;
      float* sum = y + received.row * hidden_size;
      for (int64_t i = 0; i < hidden_size; ++i) sum[i] += weight * row[i];
    }
    return {};
  }

 private:
  ExchangeShape shape_;
  int64_t expert_rank_;
  const std::vector<ExpertPair>* pairs_ = nullptr;  // of the last dispatch
};

}  // namespace

std::unique_ptr<TokenExchange> make_exchange_none(const ExchangeShape& shape, int stage_rank) {
  return std::make_unique<ExchangeNone>(shape, stage_rank);
}

}  // namespace gimbal
