// Exchange direct, mode normal: ranks publish their send lists, which hold the counts, and each copies the rows meant
// for it from where they are, one contiguous block per source. Outputs are read back in place.
#include <algorithm>

#include "base/check.h"
#include "moe/exchange/send_list.h"
#include "moe/exchange/token_exchange.h"

namespace gimbal {
namespace {

class ExchangeDirect final : public TokenExchange {
 public:
  ExchangeDirect(const ExchangeShape& shape, DeviceComm* stage) : shape_(shape), stage_(stage) {
    GIMBAL_CHECK(stage->shares_memory());
    GIMBAL_CHECK_EQ(stage->size(), shape.stage_size());
  }

  Status dispatch(const OwnTokens& own, ReceivedTokens& received) override {
    offer_.list = make_send_list(*own.batch, shape_);
    offer_.rows = own.rows;
    count_sends(offer_.list, shape_, stage_->rank(), counters_);
    ++counters_.normal_dispatches;
    GIMBAL_ASSIGN_OR_RETURN(const auto pointers, stage_->share(&offer_));
    std::vector<const Offer*> offers;
    int64_t num_rows = 0;
    for (const void* pointer : pointers) {
      offers.push_back(static_cast<const Offer*>(pointer));
      num_rows += offers.back()->list.num_tokens(static_cast<size_t>(stage_->rank()));
    }
    rows_.resize(static_cast<size_t>(num_rows * shape_.hidden_size));
    received.pairs.clear();
    received.pair_begin = {0};
    int64_t first_row = 0;
    for (const Offer* offer : offers) first_row = take(*offer, first_row, received);
    received.rows = rows_.data();
    return {};
  }

  Status combine(const OwnTokens& own, const ComputedPairs& computed, float* y) override {
    results_ = {.rows = computed.rows, .pair_row = computed.pair_row.data(), .pair_begin = pair_begin_.data()};
    GIMBAL_ASSIGN_OR_RETURN(const auto pointers, stage_->share(&results_));
    const auto self = static_cast<size_t>(stage_->rank());
    const auto row_of = [&](int64_t pair, int64_t part) {
      const SendList::Place& place = offer_.list.places[static_cast<size_t>(pair * shape_.expert_tp + part)];
      const auto& theirs = *static_cast<const Results*>(pointers[static_cast<size_t>(place.rank)]);
      return theirs.rows + theirs.pair_row[theirs.pair_begin[self] + place.index] * shape_.hidden_size;
    };
    combine_returned({.batch = own.batch, .hidden_size = shape_.hidden_size, .num_parts = shape_.expert_tp, .y = y},
                     row_of);
    return stage_->barrier();  // results must stand until everybody has read them
  }

 private:
  struct Offer {
    SendList list;
    const float* rows = nullptr;  // [num_tokens][hidden_size] of the source
  };
  struct Results {
    const float* rows = nullptr;
    const int64_t* pair_row = nullptr;    // [num_pairs]
    const int64_t* pair_begin = nullptr;  // [stage_size + 1]
  };

  // Copies what one source has for this rank; returns the row after its last.
  int64_t take(const Offer& offer, int64_t first_row, ReceivedTokens& received) {
    const auto self = static_cast<size_t>(stage_->rank());
    const int64_t hidden_size = shape_.hidden_size;
    float* target = rows_.data() + first_row * hidden_size;
    for (int64_t send = offer.list.token_begin[self]; send < offer.list.token_begin[self + 1]; ++send) {
      target =
          std::copy_n(offer.rows + offer.list.tokens[static_cast<size_t>(send)] * hidden_size, hidden_size, target);
    }
    for (int64_t pair = offer.list.pair_begin[self]; pair < offer.list.pair_begin[self + 1]; ++pair) {
      received.pairs.push_back(offer.list.pairs[static_cast<size_t>(pair)]);
      received.pairs.back().row += static_cast<int32_t>(first_row);
    }
    received.pair_begin.push_back(static_cast<int64_t>(received.pairs.size()));
    if (received.pair_begin.size() == static_cast<size_t>(shape_.stage_size()) + 1) {
      pair_begin_ = received.pair_begin;
      count_returns(received, shape_, stage_->rank(), counters_);
    }
    return first_row + offer.list.num_tokens(self);
  }

  ExchangeShape shape_;
  DeviceComm* stage_;  // not owned
  Offer offer_;
  Results results_;
  std::vector<int64_t> pair_begin_;  // [stage_size + 1] of the last dispatch
  std::vector<float> rows_;          // [num received][hidden_size]
};

}  // namespace

std::unique_ptr<TokenExchange> make_exchange_direct(const ExchangeShape& shape, DeviceComm* stage) {
  return std::make_unique<ExchangeDirect>(shape, stage);
}

}  // namespace gimbal
