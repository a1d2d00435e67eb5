// The same steps in many layouts, in this process: bits, tolerances, failures. The full matrix runs the program from
// outside (tests/distributed); this reduced one also runs under the sanitizers.
#include "engine/rank_executor.h"

#include <cmath>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/settings_for_test.h"

namespace gimbal {
namespace {

constexpr int64_t kNumSequences = 5;
constexpr int kDecodeSteps = 6;

// Logits of every scored row, by sequence.
using Scores = std::map<uint64_t, std::vector<RowScore>>;

class Session {
 public:
  explicit Session(const std::string& layout) {
    Settings settings = settings_for_test();
    settings.layout = layout;
    settings.comm_timeout_s = 120;
    const ModelConfig config = *read_model_config(settings.model_path);
    auto executor = RankExecutor::start(settings, config, nullptr);
    if (!executor) {
      error = executor.error().message;
      return;
    }
    executor_ = std::move(*executor);
  }

  // Prompts in chunks of 9 rows with several steps in flight, then decode steps, a different number of sequences each.
  Scores run() {
    Scores scores;
    for (int64_t begin = 0; begin < 27; begin += 9) {
      for (int64_t id = 0; id < kNumSequences; ++id) submit({prompt_chunk(id, begin)}, scores);
    }
    drain(scores);
    for (int step = 0; step < kDecodeSteps; ++step) {
      std::vector<PlannedSequence> sequences;
      for (int64_t id = 0; id < kNumSequences; ++id) {
        if ((id + step) % 4 != 0) sequences.push_back(decode_row(id));
      }
      submit(std::move(sequences), scores);
      drain(scores);
    }
    return scores;
  }

  RankExecutor& executor() { return *executor_; }
  std::string error;

 private:
  int32_t group_of(int64_t id) const { return static_cast<int32_t>(id % executor_->plan().layout.attention_dp); }
  std::vector<PageId> pages_of(int64_t id) const {
    return {static_cast<PageId>(3 * id), static_cast<PageId>(3 * id + 2), static_cast<PageId>(3 * id + 1)};
  }
  PlannedSequence planned(int64_t id, std::vector<int32_t> token_ids, bool is_prefill) {
    PlannedSequence sequence{.sequence_id = static_cast<uint64_t>(id),
                             .dp_group = group_of(id),
                             .token_ids = std::move(token_ids),
                             .first_position = positions_[id],
                             .pages = pages_of(id),
                             .is_prefill = is_prefill,
                             .logit_rows = is_prefill ? LogitRows::kAll : LogitRows::kLast,
                             .num_top_logits = 64};
    positions_[id] += static_cast<int64_t>(sequence.token_ids.size());
    if (!is_prefill) sequence.sampling = SamplingPlan{.position = positions_[id]};
    return sequence;
  }
  PlannedSequence prompt_chunk(int64_t id, int64_t begin) {
    std::vector<int32_t> ids;
    for (int64_t i = begin; i < begin + 9; ++i) ids.push_back(static_cast<int32_t>((id * 131 + i * 17) % 3800));
    return planned(id, std::move(ids), true);
  }
  // Teacher forcing: all layouts compute the same tokens, so that rows can be compared.
  PlannedSequence decode_row(int64_t id) {
    return planned(id, {static_cast<int32_t>((id * 53 + positions_[id] * 29) % 3800)}, false);
  }
  void submit(std::vector<PlannedSequence> sequences, Scores& scores) {
    if (executor_->num_in_flight() == executor_->plan().num_in_flight) take(scores);
    const Status status = executor_->submit({.step = ++step_, .sequences = std::move(sequences)});
    ASSERT_TRUE(status.has_value()) << status.error().message;
  }
  void drain(Scores& scores) {
    while (executor_->num_in_flight() > 0) take(scores);
  }
  void take(Scores& scores) {
    const auto result = executor_->wait();
    ASSERT_TRUE(result.has_value()) << result.error().message;
    for (const SequenceResult& sequence : result->sequences) {
      EXPECT_TRUE(sequence.is_finite);
      auto& rows = scores[sequence.sequence_id];
      rows.insert(rows.end(), sequence.rows.begin(), sequence.rows.end());
    }
  }

  std::unique_ptr<RankExecutor> executor_;
  std::map<int64_t, int64_t> positions_;
  uint64_t step_ = 0;
};

// Largest |difference| of logits of the same id; infinity when rows are missing.
double difference(const Scores& a, const Scores& b) {
  double largest = 0.0;
  for (const auto& [id, rows] : a) {
    if (!b.contains(id) || b.at(id).size() != rows.size()) return INFINITY;
    for (size_t row = 0; row < rows.size(); ++row) {
      std::map<int32_t, float> other;
      for (const TopLogit& top : b.at(id)[row].top) other[top.id] = top.logit;
      for (const TopLogit& top : rows[row].top) {
        if (other.contains(top.id)) largest = std::max<double>(largest, std::fabs(top.logit - other[top.id]));
      }
    }
  }
  return largest;
}

bool are_same_bits(const Scores& a, const Scores& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [id, rows] : a) {
    if (!b.contains(id) || b.at(id).size() != rows.size()) return false;
    for (size_t row = 0; row < rows.size(); ++row) {
      const auto& other = b.at(id)[row].top;
      for (size_t i = 0; i < rows[row].top.size(); ++i) {
        if (rows[row].top[i].id != other[i].id || rows[row].top[i].logit != other[i].logit) return false;
      }
    }
  }
  return true;
}

const Scores& single_scores() {
  static const Scores scores = Session("single").run();
  return scores;
}

class RankExecutorLayouts : public testing::TestWithParam<const char*> {};

TEST_P(RankExecutorLayouts, ComputesTheFunctionOfOneRank) {
  Session session(GetParam());
  ASSERT_EQ(session.error, "");
  ASSERT_EQ(single_scores().size(), static_cast<size_t>(kNumSequences));
  const Scores scores = session.run();
  if (session.executor().plan().layout.is_bitwise()) {
    EXPECT_TRUE(are_same_bits(scores, single_scores())) << "largest difference " << difference(scores, single_scores());
  } else {
    EXPECT_LE(difference(scores, single_scores()), 5e-3);
    EXPECT_GT(difference(scores, single_scores()), 0.0)
        << "a split sum with the bits of a whole one: is anything split?";
    EXPECT_TRUE(are_same_bits(Session(GetParam()).run(), scores)) << "not the same in two runs";
  }
  std::printf("%-24s %2ld ranks, largest |logit difference| %.2e\n", GetParam(),
              session.executor().plan().layout.world_size(), difference(scores, single_scores()));
}

INSTANTIATE_TEST_SUITE_P(Reduced, RankExecutorLayouts,
                         testing::Values("pp2", "pp3:layers1,4,3", "ep2", "ep4", "ep3:mpi", "ep4:low_latency",
                                         "ep2:normal", "pp2ep2", "pp2ep2:mpi:low_latency", "tp2", "tep2", "tp2ep2",
                                         "dp2tp2", "dp2ep2:none", "dp1tp2ep2", "tp2ep2:mpi:dense1", "pp2tp2"));

TEST(RankExecutor, CountsWhatRanksExchange) {
  Session session("ep4");
  ASSERT_EQ(session.error, "");
  (void)session.run();
  const auto reports = session.executor().reports();
  ASSERT_TRUE(reports.has_value());
  ASSERT_EQ(reports->size(), 4u);
  uint64_t pairs = 0;
  for (const RankReport& report : *reports) {
    EXPECT_GT(report.exchange.normal_dispatches, 0u);
    EXPECT_GT(report.exchange.low_latency_dispatches, 0u);  // decode steps of mode auto
    EXPECT_EQ(report.exchange.row_bytes, (report.exchange.rows_sent + report.exchange.rows_returned) * 128 * 4);
    for (const auto& layer : report.expert_load) {
      for (const uint64_t count : layer) pairs += count;
    }
  }
  uint64_t rows = kNumSequences * 27;
  for (int step = 0; step < kDecodeSteps; ++step) {
    for (int64_t id = 0; id < kNumSequences; ++id) rows += (id + step) % 4 != 0 ? 1 : 0;
  }
  EXPECT_EQ(pairs, rows * 8 * 7);  // experts per token, MoE layers
}

TEST(RankExecutor, RefusesBeforeReadingWeights) {
  EXPECT_THAT(Session("ep5").error, testing::HasSubstr("--ep-num-redundant-experts 1"));
  EXPECT_THAT(Session("tp3").error, testing::HasSubstr("attention heads"));
}

TEST(RankExecutor, TwoEnginesLiveSideBySide) {
  Session first("ep2"), second("pp2");
  ASSERT_EQ(first.error + second.error, "");
  EXPECT_TRUE(are_same_bits(first.run(), second.run()));
}

}  // namespace
}  // namespace gimbal
