// Exchange mpi, mode normal: counts, then pairs, then rows, each in one all_to_all; outputs return the same way. Works
// over every DeviceComm.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "moe/exchange/send_list.h"
#include "moe/exchange/token_exchange.h"

namespace gimbal {
namespace {

class ExchangeMpi final : public TokenExchange {
 public:
  ExchangeMpi(const ExchangeShape& shape, DeviceComm* stage) : shape_(shape), stage_(stage) {
    GIMBAL_CHECK_EQ(stage->size(), shape.stage_size());
  }

  Status dispatch(const OwnTokens& own, ReceivedTokens& received) override {
    list_ = make_send_list(*own.batch, shape_);
    count_sends(list_, shape_, stage_->rank(), counters_);
    ++counters_.normal_dispatches;
    GIMBAL_RETURN_IF_ERROR(exchange_counts());
    GIMBAL_RETURN_IF_ERROR(exchange_pairs(received));
    count_returns(received, shape_, stage_->rank(), counters_);
    return exchange_rows(own, received);
  }

  Status combine(const OwnTokens& own, const ComputedPairs& computed, float* y) override {
    const int64_t hidden_size = shape_.hidden_size;
    const auto row_bytes = static_cast<uint64_t>(hidden_size) * sizeof(float);
    send_rows_.resize(computed.pair_row.size() * static_cast<size_t>(hidden_size));
    float* target = send_rows_.data();
    for (const int64_t row : computed.pair_row)
      target = std::copy_n(computed.rows + row * hidden_size, hidden_size, target);
    std::vector<uint64_t> send_bytes, receive_bytes;
    for (size_t rank = 0; rank < counts_.size(); ++rank) {
      send_bytes.push_back(static_cast<uint64_t>(counts_[rank].pairs) * row_bytes);
      receive_bytes.push_back(static_cast<uint64_t>(list_.num_pairs(rank)) * row_bytes);
    }
    returned_.resize(static_cast<size_t>(list_.pair_begin.back() * hidden_size));
    GIMBAL_RETURN_IF_ERROR(stage_->all_to_all({.send = std::as_bytes(std::span(send_rows_)),
                                               .send_bytes = send_bytes,
                                               .receive = std::as_writable_bytes(std::span(returned_)),
                                               .receive_bytes = receive_bytes}));
    const auto row_of = [&](int64_t pair, int64_t part) {
      const SendList::Place& place = list_.places[static_cast<size_t>(pair * shape_.expert_tp + part)];
      return returned_.data() + (list_.pair_begin[static_cast<size_t>(place.rank)] + place.index) * hidden_size;
    };
    combine_returned({.batch = own.batch, .hidden_size = hidden_size, .num_parts = shape_.expert_tp, .y = y}, row_of);
    return {};
  }

 private:
  struct Counts {
    int64_t tokens = 0;
    int64_t pairs = 0;
  };

  Status exchange_counts() {
    const auto size = static_cast<size_t>(shape_.stage_size());
    std::vector<Counts> outgoing(size);
    for (size_t rank = 0; rank < size; ++rank) outgoing[rank] = {list_.num_tokens(rank), list_.num_pairs(rank)};
    counts_.assign(size, {});
    const std::vector<uint64_t> bytes(size, sizeof(Counts));
    return stage_->all_to_all({.send = std::as_bytes(std::span(outgoing)),
                               .send_bytes = bytes,
                               .receive = std::as_writable_bytes(std::span(counts_)),
                               .receive_bytes = bytes});
  }

  Status exchange_pairs(ReceivedTokens& received) {
    std::vector<uint64_t> send_bytes, receive_bytes;
    received.pair_begin = {0};
    for (size_t rank = 0; rank < counts_.size(); ++rank) {
      send_bytes.push_back(static_cast<uint64_t>(list_.num_pairs(rank)) * sizeof(ExpertPair));
      receive_bytes.push_back(static_cast<uint64_t>(counts_[rank].pairs) * sizeof(ExpertPair));
      received.pair_begin.push_back(received.pair_begin.back() + counts_[rank].pairs);
    }
    received.pairs.resize(static_cast<size_t>(received.pair_begin.back()));
    GIMBAL_RETURN_IF_ERROR(stage_->all_to_all({.send = std::as_bytes(std::span(list_.pairs)),
                                               .send_bytes = send_bytes,
                                               .receive = std::as_writable_bytes(std::span(received.pairs)),
                                               .receive_bytes = receive_bytes}));
    int64_t first_row = 0;
    for (size_t rank = 0; rank < counts_.size(); ++rank) {
      for (int64_t pair = received.pair_begin[rank]; pair < received.pair_begin[rank + 1]; ++pair)
        received.pairs[static_cast<size_t>(pair)].row += static_cast<int32_t>(first_row);
      first_row += counts_[rank].tokens;
    }
    return {};
  }

  Status exchange_rows(const OwnTokens& own, ReceivedTokens& received) {
    const int64_t hidden_size = shape_.hidden_size;
    const auto row_bytes = static_cast<uint64_t>(hidden_size) * sizeof(float);
    send_rows_.resize(list_.tokens.size() * static_cast<size_t>(hidden_size));
    float* target = send_rows_.data();
    for (const int32_t token : list_.tokens) target = std::copy_n(own.rows + token * hidden_size, hidden_size, target);
    std::vector<uint64_t> send_bytes, receive_bytes;
    int64_t num_rows = 0;
    for (size_t rank = 0; rank < counts_.size(); ++rank) {
      send_bytes.push_back(static_cast<uint64_t>(list_.num_tokens(rank)) * row_bytes);
      receive_bytes.push_back(static_cast<uint64_t>(counts_[rank].tokens) * row_bytes);
      num_rows += counts_[rank].tokens;
    }
    rows_.resize(static_cast<size_t>(num_rows * hidden_size));
    received.rows = rows_.data();
    return stage_->all_to_all({.send = std::as_bytes(std::span(send_rows_)),
                               .send_bytes = send_bytes,
                               .receive = std::as_writable_bytes(std::span(rows_)),
                               .receive_bytes = receive_bytes});
  }

  ExchangeShape shape_;
  DeviceComm* stage_;  // not owned
  SendList list_;
  std::vector<Counts> counts_;    // [stage_size] that come from each rank
  std::vector<float> send_rows_;  // [num sent][hidden_size]
  std::vector<float> rows_;       // [num received][hidden_size]
  std::vector<float> returned_;   // [num pairs][hidden_size] by computing rank
};

}  // namespace

std::unique_ptr<TokenExchange> make_exchange_mpi(const ExchangeShape& shape, DeviceComm* stage) {
  return std::make_unique<ExchangeMpi>(shape, stage);
}

}  // namespace gimbal
