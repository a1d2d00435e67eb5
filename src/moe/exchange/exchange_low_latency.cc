// Mode low_latency: rows are put one-sided into fixed slots of the receiver, outputs into fixed slots of the sender. A
// receiver waits for one signal per peer; no counts travel ahead of the rows.
//
// Window of a rank, M = low_latency_tokens, K = experts_per_token, S = stage size:
//   rows     [S][M][hidden]        tokens of each source
//   returned [M * K][expert_tp][hidden]   outputs for the own pairs
//   headers  [S] counts, pairs [S][M * K]
// A slot may be written again without waiting: a source starts its next dispatch only after all its outputs have
// returned, hence after every receiver has used its rows.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"
#include "moe/exchange/send_list.h"
#include "moe/exchange/token_exchange.h"

namespace gimbal {
namespace {

struct Header {
  int64_t num_tokens = 0;
  int64_t num_pairs = 0;
};

// Byte offsets in a window; the one description of its layout.
struct WindowLayout {
  explicit WindowLayout(const ExchangeShape& shape) {
    const auto sources = static_cast<uint64_t>(shape.stage_size());
    const auto tokens = static_cast<uint64_t>(shape.low_latency_tokens);
    const auto pairs = tokens * static_cast<uint64_t>(shape.experts_per_token);
    row_bytes = static_cast<uint64_t>(shape.hidden_size) * sizeof(float);
    source_rows_bytes = tokens * row_bytes;
    source_pairs_bytes = pairs * sizeof(ExpertPair);
    returned = sources * source_rows_bytes;
    headers = returned + pairs * static_cast<uint64_t>(shape.expert_tp) * row_bytes;
    pair_lists = headers + sources * sizeof(Header);
    total = pair_lists + sources * source_pairs_bytes;
  }
  uint64_t row_bytes = 0;
  uint64_t source_rows_bytes = 0;
  uint64_t source_pairs_bytes = 0;
  uint64_t returned = 0;
  uint64_t headers = 0;
  uint64_t pair_lists = 0;
  uint64_t total = 0;
};

class ExchangeLowLatency final : public TokenExchange {
 public:
  ExchangeLowLatency(const ExchangeShape& shape, DeviceComm* stage, std::unique_ptr<PeerWindow> window)
      : shape_(shape), layout_(shape), stage_(stage), window_(std::move(window)) {}

  Status dispatch(const OwnTokens& own, ReceivedTokens& received) override {
    if (own.batch->num_tokens > shape_.low_latency_tokens) {
      return fail(Error::failed(
          fmt::format("A step brings {} tokens to rank {}, but the low-latency exchange has {} slots per rank.",
                      own.batch->num_tokens, stage_->state().world_rank, shape_.low_latency_tokens)));
    }
    ++round_;
    ++counters_.low_latency_dispatches;
    const SendList list = make_send_list(*own.batch, shape_);
    count_sends(list, shape_, stage_->rank(), counters_);
    for (int peer = 0; peer < stage_->size(); ++peer) GIMBAL_RETURN_IF_ERROR(put_tokens(list, own, peer));
    received.rows = reinterpret_cast<const float*>(window_->local());
    received.pairs.clear();
    received.pair_begin = {0};
    for (int source = 0; source < stage_->size(); ++source) GIMBAL_RETURN_IF_ERROR(take_tokens(source, received));
    count_returns(received, shape_, stage_->rank(), counters_);
    received_ = &received;
    return {};
  }

  Status combine(const OwnTokens& own, const ComputedPairs& computed, float* y) override {
    for (int source = 0; source < stage_->size(); ++source) {
      const auto at = static_cast<size_t>(source);
      for (int64_t pair = received_->pair_begin[at]; pair < received_->pair_begin[at + 1]; ++pair) {
        const auto index = static_cast<size_t>(pair);
        const float* row = computed.rows + computed.pair_row[index] * shape_.hidden_size;
        GIMBAL_RETURN_IF_ERROR(window_->put(source, returned_offset(received_->pairs[index].source_pair, own_part()),
                                            std::as_bytes(std::span(row, static_cast<size_t>(shape_.hidden_size)))));
      }
      GIMBAL_RETURN_IF_ERROR(window_->signal(source, stage_->size() + stage_->rank(), round_));
    }
    for (int peer = 0; peer < stage_->size(); ++peer)
      GIMBAL_RETURN_IF_ERROR(window_->wait_signal(stage_->size() + peer, round_));
    const auto row_of = [&](int64_t pair, int64_t part) {
      return reinterpret_cast<const float*>(window_->local() + returned_offset(pair, part));
    };
    combine_returned({.batch = own.batch, .hidden_size = shape_.hidden_size, .num_parts = shape_.expert_tp, .y = y},
                     row_of);
    return {};
  }

 private:
  int64_t own_part() const { return stage_->rank() % shape_.expert_tp; }
  uint64_t returned_offset(int64_t pair, int64_t part) const {
    return layout_.returned + static_cast<uint64_t>(pair * shape_.expert_tp + part) * layout_.row_bytes;
  }

  Status put_tokens(const SendList& list, const OwnTokens& own, int peer) {
    const auto at = static_cast<size_t>(peer);
    const auto self = static_cast<uint64_t>(stage_->rank());
    uint64_t offset = self * layout_.source_rows_bytes;
    for (int64_t send = list.token_begin[at]; send < list.token_begin[at + 1]; ++send, offset += layout_.row_bytes) {
      const float* row = own.rows + list.tokens[static_cast<size_t>(send)] * shape_.hidden_size;
      GIMBAL_RETURN_IF_ERROR(
          window_->put(peer, offset, std::as_bytes(std::span(row, static_cast<size_t>(shape_.hidden_size)))));
    }
    const std::span<const ExpertPair> pairs(list.pairs.data() + list.pair_begin[at],
                                            static_cast<size_t>(list.num_pairs(at)));
    GIMBAL_RETURN_IF_ERROR(
        window_->put(peer, layout_.pair_lists + self * layout_.source_pairs_bytes, std::as_bytes(pairs)));
    const Header header{list.num_tokens(at), list.num_pairs(at)};
    GIMBAL_RETURN_IF_ERROR(
        window_->put(peer, layout_.headers + self * sizeof(Header), std::as_bytes(std::span(&header, 1))));
    return window_->signal(peer, stage_->rank(), round_);
  }

  Status take_tokens(int source, ReceivedTokens& received) {
    GIMBAL_RETURN_IF_ERROR(window_->wait_signal(source, round_));
    const auto from = static_cast<uint64_t>(source);
    Header header;
    std::memcpy(&header, window_->local() + layout_.headers + from * sizeof(Header), sizeof(Header));
    GIMBAL_CHECK(header.num_pairs >= 0 && header.num_tokens >= 0 && header.num_tokens <= shape_.low_latency_tokens);
    const size_t first = received.pairs.size();
    received.pairs.resize(first + static_cast<size_t>(header.num_pairs));
    if (header.num_pairs > 0) {
      std::memcpy(received.pairs.data() + first,
                  window_->local() + layout_.pair_lists + from * layout_.source_pairs_bytes,
                  static_cast<size_t>(header.num_pairs) * sizeof(ExpertPair));
    }
    const auto first_row = static_cast<int32_t>(source * shape_.low_latency_tokens);
    for (size_t pair = first; pair < received.pairs.size(); ++pair) received.pairs[pair].row += first_row;
    received.pair_begin.push_back(static_cast<int64_t>(received.pairs.size()));
    return {};
  }

  ExchangeShape shape_;
  WindowLayout layout_;
  DeviceComm* stage_;  // not owned
  std::unique_ptr<PeerWindow> window_;
  uint64_t round_ = 0;
  const ReceivedTokens* received_ = nullptr;  // of the last dispatch
};

}  // namespace

uint64_t low_latency_window_bytes(const ExchangeShape& shape) {
  return shape.low_latency_tokens > 0 ? WindowLayout(shape).total : 0;
}

Result<std::unique_ptr<TokenExchange>> make_exchange_low_latency(const ExchangeShape& shape, DeviceComm* stage) {
  GIMBAL_CHECK_EQ(stage->size(), shape.stage_size());
  GIMBAL_CHECK_GE(shape.low_latency_tokens, 1);
  GIMBAL_ASSIGN_OR_RETURN(std::unique_ptr<PeerWindow> window,
                          stage->make_window(WindowLayout(shape).total, int64_t{2} * stage->size()));
  return std::make_unique<ExchangeLowLatency>(shape, stage, std::move(window));
}

}  // namespace gimbal
