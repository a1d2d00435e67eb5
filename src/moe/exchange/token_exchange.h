// TokenExchange: how the tokens of one rank meet experts that other ranks of the stage hold.
//
//   dispatch: own rows and their chosen slots -> rows and (row, local expert) pairs this rank must compute
//   combine:  one output row per pair -> y[token] = sum over the token's experts in top-k order of weight * row
// Both are collective over the stage: every rank calls them once per MoE layer, also with no token at all. A row is
// sent once to a rank, however many of the rank's experts it needs. With expert tensor parallel every rank of an
// expert's group gets the row and returns a partial one; the parts are added in rank order. Nothing is ever dropped.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "comm/device_comm.h"
#include "moe/token_layouts.h"
#include "parallel/parallel_layout.h"

namespace gimbal {

// Where the ranks of the stage stand, and how large things are.
struct ExchangeShape {
  int64_t hidden_size = 0;
  int64_t experts_per_token = 0;
  int64_t slots_per_rank = 0;  // physical experts on an expert-parallel rank
  int64_t expert_parallel = 1;
  int64_t expert_tp = 1;
  int64_t low_latency_tokens = 0;  // most own tokens of a low-latency step; 0: no low-latency windows are made
  int64_t stage_size() const { return expert_parallel * expert_tp; }
};

// What this rank brings: its tokens' rows and where each (token, expert) pair shall be computed.
struct OwnTokens {
  const TokenMajorBatch* batch = nullptr;  // expert ids are physical slots in [0, expert_parallel * slots_per_rank)
  const float* rows = nullptr;             // [num_tokens][hidden_size]
};

// What this rank has to compute; valid until the next dispatch.
struct ReceivedTokens {
  const float* rows = nullptr;      // [any][hidden_size]
  std::vector<ExpertPair> pairs;    // by source rank, then token, then slot
  std::vector<int64_t> pair_begin;  // [stage_size + 1] pairs of a source rank
};

// The computed pairs, in the order in which the expert runner left them.
struct ComputedPairs {
  const float* rows = nullptr;             // [num_pairs][hidden_size]
  std::span<const int64_t> pair_row = {};  // [num_pairs] row of a received pair
};

// What has left this rank for other ranks; equals the formulas of docs/layouts.md.
struct ExchangeCounters {
  uint64_t rows_sent = 0;       // token rows to other ranks
  uint64_t rows_returned = 0;   // expert rows to other ranks
  uint64_t row_bytes = 0;       // (rows_sent + rows_returned) * hidden_size * 4
  uint64_t metadata_bytes = 0;  // counts, slots and pair numbers
  uint64_t normal_dispatches = 0;
  uint64_t low_latency_dispatches = 0;
};

class TokenExchange {
 public:
  virtual ~TokenExchange() = default;
  virtual Status dispatch(const OwnTokens& own, ReceivedTokens& received) = 0;
  // y [num_tokens][hidden_size]. Must follow the dispatch of the same tokens.
  virtual Status combine(const OwnTokens& own, const ComputedPairs& computed, float* y) = 0;
  // True: y is this rank's share only, the caller adds up the stage.
  virtual bool is_partial() const { return false; }

  const ExchangeCounters& counters() const { return counters_; }

 protected:
  ExchangeCounters counters_;
};

// No tokens move: this rank computes those pairs of its own tokens that its experts serve. `stage_rank` 0 of a stage of
// one computes everything.
std::unique_ptr<TokenExchange> make_exchange_none(const ExchangeShape& shape, int stage_rank);
// Peers' rows are read where they are. `stage` must share memory and outlive the exchange; so for the others.
std::unique_ptr<TokenExchange> make_exchange_direct(const ExchangeShape& shape, DeviceComm* stage);
// Counts, then contiguous rows in messages.
std::unique_ptr<TokenExchange> make_exchange_mpi(const ExchangeShape& shape, DeviceComm* stage);
// Rows are put into fixed slots of the receiver's window. Collective: makes the windows. Steps with more than
// shape.low_latency_tokens tokens on a rank are refused with an error before anything is sent.
Result<std::unique_ptr<TokenExchange>> make_exchange_low_latency(const ExchangeShape& shape, DeviceComm* stage);

// Memory of the low-latency windows of one rank: slots for the worst skew, where every rank sends all its tokens here.
uint64_t low_latency_window_bytes(const ExchangeShape& shape);

// y[token] = sum in slot order of weight * row, where `row_of(pair, part)` gives the rows of a pair's expert-tp parts.
struct CombineSum {
  const TokenMajorBatch* batch = nullptr;
  int64_t hidden_size = 0;
  int64_t num_parts = 1;  // expert tp
  float* y = nullptr;     // [num_tokens][hidden_size]
};
template <typename RowOf>
void combine_returned(const CombineSum& args, const RowOf& row_of) {
  std::vector<float> sum(static_cast<size_t>(args.hidden_size));
  for (int64_t token = 0; token < args.batch->num_tokens; ++token) {
    float* y = args.y + token * args.hidden_size;
    for (int64_t i = 0; i < args.hidden_size; ++i) y[i] = 0.0f;
    for (int64_t slot = 0; slot < args.batch->experts_per_token; ++slot) {
      const int64_t pair = token * args.batch->experts_per_token + slot;
      const float weight = args.batch->weights[static_cast<size_t>(pair)];
      const float* row = row_of(pair, int64_t{0});
      if (args.num_parts > 1) {
        for (int64_t i = 0; i < args.hidden_size; ++i) sum[static_cast<size_t>(i)] = row[i];
        for (int64_t part = 1; part < args.num_parts; ++part) {
          const float* more = row_of(pair, part);
          for (int64_t i = 0; i < args.hidden_size; ++i) sum[static_cast<size_t>(i)] += more[i];
        }
        row = sum.data();
      }
      for (int64_t i = 0; i < args.hidden_size; ++i) y[i] += weight * row[i];
    }
  }
}

}  // namespace gimbal
