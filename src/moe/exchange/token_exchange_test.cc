// Every exchange on random routing: rows and sums equal to those of one rank, bytes equal to the formulas.
#include "moe/exchange/token_exchange.h"

#include <cstring>
#include <random>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/in_process_world.h"
#include "moe/exchange/copy_choice.h"
#include "moe/exchange/send_list.h"

namespace gimbal {
namespace {

enum class Kind { kDirect, kMpi, kLowLatency };

struct Case {
  Kind kind;
  int64_t expert_parallel;
  int64_t expert_tp;
};

constexpr int64_t kHidden = 24, kSlots = 5, kPerToken = 3, kMostTokens = 40;

ExchangeShape shape_of(const Case& c) {
  return {.hidden_size = kHidden,
          .experts_per_token = kPerToken,
          .slots_per_rank = kSlots,
          .expert_parallel = c.expert_parallel,
          .expert_tp = c.expert_tp,
          .low_latency_tokens = kMostTokens};
}

// The tokens of one rank in one layer; some ranks have none, in some layers all go to the last rank.
struct RankTokens {
  TokenMajorBatch batch;
  std::vector<float> rows;
};

RankTokens tokens_of(const Case& c, int rank, unsigned seed, bool is_skewed) {
  std::mt19937 random(seed * 131 + static_cast<unsigned>(rank));
  std::normal_distribution<float> normal;
  RankTokens tokens;
  tokens.batch.experts_per_token = kPerToken;
  tokens.batch.num_tokens = random() % 3 == 0 ? 0 : static_cast<int64_t>(random() % kMostTokens + 1);
  const int64_t num_slots = c.expert_parallel * kSlots;
  const int64_t first = is_skewed ? num_slots - kSlots : 0;
  for (int64_t token = 0; token < tokens.batch.num_tokens; ++token) {
    std::set<int32_t> chosen;
    while (chosen.size() < kPerToken)
      chosen.insert(static_cast<int32_t>(first + static_cast<int64_t>(random()) % (num_slots - first)));
    for (const int32_t slot : chosen) {
      tokens.batch.expert_ids.push_back(slot);
      tokens.batch.weights.push_back(normal(random));
    }
  }
  tokens.rows.resize(static_cast<size_t>(tokens.batch.num_tokens * kHidden));
  for (float& value : tokens.rows) value = normal(random);
  return tokens;
}

// An expert's work: any function of row, expert and part.
float compute(float x, int64_t slot, int64_t part) {
  return x * static_cast<float>(1 + slot) + 0.125f * static_cast<float>(part);
}

std::vector<float> expected_sum(const Case& c, const RankTokens& tokens) {
  std::vector<float> y(tokens.rows.size(), 0.0f);
  for (size_t pair = 0; pair < tokens.batch.expert_ids.size(); ++pair) {
    const size_t token = pair / kPerToken;
    for (size_t i = 0; i < kHidden; ++i) {
      const float x = tokens.rows[token * kHidden + i];
      float row = compute(x, tokens.batch.expert_ids[pair], 0);
      for (int64_t part = 1; part < c.expert_tp; ++part) row += compute(x, tokens.batch.expert_ids[pair], part);
      y[token * kHidden + i] += tokens.batch.weights[pair] * row;
    }
  }
  return y;
}

std::unique_ptr<TokenExchange> make(const Case& c, DeviceComm* stage) {
  switch (c.kind) {
    case Kind::kDirect:
      return make_exchange_direct(shape_of(c), stage);
    case Kind::kMpi:
      return make_exchange_mpi(shape_of(c), stage);
    case Kind::kLowLatency:
      break;
  }
  return std::move(*make_exchange_low_latency(shape_of(c), stage));
}

class TokenExchanges : public testing::TestWithParam<Case> {
 protected:
  // One layer on one rank; returns its tokens' sums.
  static std::vector<float> run_layer(const Case& c, int rank, const RankTokens& tokens, TokenExchange& exchange) {
    ReceivedTokens received;
    const OwnTokens own{.batch = &tokens.batch, .rows = tokens.rows.data()};
    EXPECT_TRUE(exchange.dispatch(own, received).has_value());
    const ExpertMajorBatch batch = sort_by_expert(received.pairs, kSlots);
    std::vector<float> results(received.pairs.size() * kHidden);
    const int64_t first_slot = rank / c.expert_tp * kSlots;
    for (size_t pair = 0; pair < received.pairs.size(); ++pair) {
      const float* row = received.rows + received.pairs[pair].row * kHidden;
      float* result = results.data() + batch.pair_row[pair] * kHidden;
      for (int64_t i = 0; i < kHidden; ++i)
        result[i] = compute(row[i], first_slot + received.pairs[pair].local_slot, rank % c.expert_tp);
    }
    std::vector<float> y(tokens.rows.size(), -1.0f);
    EXPECT_TRUE(exchange.combine(own, {.rows = results.data(), .pair_row = batch.pair_row}, y.data()).has_value());
    return y;
  }
};

TEST_P(TokenExchanges, SumsEqualThoseOfOneRankBitwise) {
  const Case c = GetParam();
  const auto size = static_cast<int>(c.expert_parallel * c.expert_tp);
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  const auto world = InProcessWorld::create(size, std::chrono::milliseconds(60000));
  std::vector<ExchangeCounters> counters(ranks.size());
  constexpr unsigned kLayers = 30;
  std::vector<std::thread> threads;
  for (const int rank : ranks) {
    threads.emplace_back([&, rank] {
      const auto stage = world->device_comm(rank, ranks, "stage");
      const auto exchange = make(c, stage.get());
      for (unsigned layer = 0; layer < kLayers; ++layer) {
        const RankTokens tokens = tokens_of(c, rank, layer, layer % 4 == 3);
        const std::vector<float> y = run_layer(c, rank, tokens, *exchange);
        const std::vector<float> expected = expected_sum(c, tokens);
        ASSERT_EQ(y.size(), expected.size());
        if (y.empty()) continue;  // a rank without tokens
        EXPECT_EQ(std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)), 0) << rank << " " << layer;
      }
      counters[static_cast<size_t>(rank)] = exchange->counters();
    });
  }
  for (std::thread& thread : threads) thread.join();
  // Rows: per token one for every other rank that serves any of its experts; back: one for every pair computed
  // elsewhere.
  uint64_t rows_sent = 0, rows_returned = 0, total_sent = 0, total_returned = 0;
  for (const int rank : ranks) {
    for (unsigned layer = 0; layer < kLayers; ++layer) {
      const RankTokens tokens = tokens_of(c, rank, layer, layer % 4 == 3);
      for (int64_t token = 0; token < tokens.batch.num_tokens; ++token) {
        std::set<int64_t> others;
        for (int64_t slot = 0; slot < kPerToken; ++slot) {
          const int64_t first =
              tokens.batch.expert_ids[static_cast<size_t>(token * kPerToken + slot)] / kSlots * c.expert_tp;
          for (int64_t part = 0; part < c.expert_tp; ++part) {
            if (first + part == rank) continue;
            others.insert(first + part);
            ++rows_returned;
          }
        }
        rows_sent += others.size();
      }
    }
  }
  for (const ExchangeCounters& counter : counters) {
    total_sent += counter.rows_sent;
    total_returned += counter.rows_returned;
    EXPECT_EQ(counter.row_bytes, (counter.rows_sent + counter.rows_returned) * kHidden * sizeof(float));
  }
  EXPECT_EQ(total_sent, rows_sent);
  EXPECT_EQ(total_returned, rows_returned);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, TokenExchanges, testing::ValuesIn([] {
      std::vector<Case> cases;
      for (const Kind kind : {Kind::kDirect, Kind::kMpi, Kind::kLowLatency}) {
        for (const auto& [ep, tp] : std::vector<std::pair<int64_t, int64_t>>{{2, 1}, {3, 1}, {8, 1}, {2, 2}, {2, 4}}) {
          cases.push_back({kind, ep, tp});
        }
      }
      return cases;
    }()));

TEST(LowLatencyExchange, RefusesMoreTokensThanSlots) {
  const Case c{Kind::kLowLatency, 1, 1};
  const auto world = InProcessWorld::create(1, std::chrono::milliseconds(1000));
  const auto stage = world->device_comm(0, {0}, "stage");
  const auto exchange = make(c, stage.get());
  const TokenMajorBatch batch{.num_tokens = kMostTokens + 1,
                              .experts_per_token = kPerToken,
                              .expert_ids = std::vector<int32_t>((kMostTokens + 1) * kPerToken, 0),
                              .weights = std::vector<float>((kMostTokens + 1) * kPerToken, 1.0f)};
  ReceivedTokens received;
  const Status status = exchange->dispatch({.batch = &batch, .rows = nullptr}, received);
  ASSERT_FALSE(status.has_value());
  EXPECT_THAT(status.error().message, testing::HasSubstr("41 tokens"));
  EXPECT_THAT(status.error().message, testing::HasSubstr("40 slots"));
}

TEST(SendList, MergesTheSendsOfATokenToOneRank) {
  const TokenMajorBatch batch{.num_tokens = 2,
                              .experts_per_token = 3,
                              .expert_ids = {0, 6, 1, 7, 2, 5},
                              .weights = std::vector<float>(6, 1.0f)};
  const SendList list = make_send_list(batch, shape_of({Kind::kDirect, 2, 1}));
  EXPECT_THAT(list.token_begin, testing::ElementsAre(0, 2, 4));
  EXPECT_THAT(list.tokens, testing::ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(list.pair_begin, testing::ElementsAre(0, 3, 6));
  EXPECT_EQ(list.pairs[1].local_slot, 1);
  EXPECT_EQ(list.pairs[1].row, 0);
  EXPECT_EQ(list.pairs[4].source_pair, 3);
  EXPECT_EQ(list.places[3].rank, 1);
  EXPECT_EQ(list.places[3].index, 1);
}

TEST(CopyChoice, StaticPrefersTheOwnRankAndDynamicTakesTurns) {
  // 4 experts on 3 ranks with 2 slots each: experts 0 and 1 have two copies (slots 0, 4 and 1, 5).
  const ExpertPlacement placement =
      ExpertPlacement::trivial({.num_layers = 1, .num_experts = 4, .num_redundant = 2, .num_ranks = 3});
  const TokenMajorBatch tokens{
      .num_tokens = 3, .experts_per_token = 2, .expert_ids = {0, 3, 0, 1, 0, 2}, .weights = std::vector<float>(6)};
  TokenMajorBatch chosen = tokens;
  choose_copies(placement, 0, {.kind = CopyChoiceKind::kStatic, .expert_rank = 2}, chosen);
  EXPECT_THAT(chosen.expert_ids, testing::ElementsAre(4, 3, 4, 5, 4, 2));
  chosen = tokens;
  choose_copies(placement, 0, {.kind = CopyChoiceKind::kDynamic}, chosen);
  EXPECT_THAT(chosen.expert_ids, testing::ElementsAre(0, 3, 4, 5, 0, 2));
}

}  // namespace
}  // namespace gimbal
