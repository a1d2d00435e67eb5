#include "parallel/parallel_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/rank_map.h"

namespace gimbal {
namespace {

struct Named {
  const char* name;
  ParallelLayout layout;
};

ParallelLayout make(int64_t pp, int64_t dp, int64_t tp, int64_t ep, ExchangeKind exchange) {
  return {.num_stages = pp,
          .attention_dp = dp,
          .attention_tp = tp,
          .expert_parallel = ep,
          .expert_tp = dp * tp / ep,
          .dense_tp = tp,
          .exchange = exchange};
}

TEST(ParallelLayout, NamesMeanWhatTheDesignSays) {
  const auto none = ExchangeKind::kNone;
  const auto direct = ExchangeKind::kDirect;
  const std::vector<Named> named = {
      {"single", make(1, 1, 1, 1, none)},
      {"tp8", make(1, 1, 8, 1, none)},
      {"pp8", make(8, 1, 1, 1, none)},
      {"ep8", make(1, 8, 1, 8, direct)},
      {"tep8", make(1, 1, 8, 8, none)},
      {"pp2tp4", make(2, 1, 4, 1, none)},
      {"pp2ep4", make(2, 4, 1, 4, direct)},
      {"tp4ep2", make(1, 2, 4, 2, direct)},
      {"dp2tp4ep8", make(1, 2, 4, 8, direct)},
      {"dp2tp4", make(1, 2, 4, 1, none)},
      {"pp2tep4", make(2, 1, 4, 4, none)},
      {"dp1tp8ep8", make(1, 1, 8, 8, direct)},
      {"dp1tp8ep2", make(1, 1, 8, 2, direct)},
      {"dp2ep2:none", make(1, 2, 1, 2, none)},
      {"ep4:mpi", make(1, 4, 1, 4, ExchangeKind::kMpi)},
  };
  for (const Named& want : named) {
    const auto layout = parse_layout(want.name);
    ASSERT_TRUE(layout.has_value()) << want.name << layout.error().message;
    EXPECT_EQ(*layout, want.layout) << want.name;
  }
}

TEST(ParallelLayout, SuffixesChangeDefaults) {
  const auto layout = parse_layout("pp2tp4ep2:mpi:low_latency:dense1:layers5,3");
  ASSERT_TRUE(layout.has_value()) << layout.error().message;
  EXPECT_EQ(layout->exchange, ExchangeKind::kMpi);
  EXPECT_EQ(layout->mode, ExchangeMode::kLowLatency);
  EXPECT_EQ(layout->dense_tp, 1);
  EXPECT_THAT(layout->layers_per_stage, testing::ElementsAre(5, 3));
  EXPECT_EQ(layout->world_size(), 16);
  EXPECT_EQ(layout_name(*layout), "pp2tp4ep2:mpi:low_latency:dense1:layers5,3");
}

TEST(ParallelLayout, EveryLayoutPrintsANameThatReadsBackEqual) {
  int num_layouts = 0;
  for (int64_t pp : {1, 2, 3, 8}) {
    for (int64_t dp : {1, 2, 3, 4, 8}) {
      for (int64_t tp : {1, 2, 4, 6}) {
        for (int64_t ep : {1, 2, 3, 4, 8, 12}) {
          if (dp * tp % ep != 0) continue;
          for (const auto exchange : {ExchangeKind::kNone, ExchangeKind::kDirect, ExchangeKind::kMpi}) {
            for (const auto mode : {ExchangeMode::kAuto, ExchangeMode::kNormal, ExchangeMode::kLowLatency}) {
              ParallelLayout layout = make(pp, dp, tp, ep, exchange);
              layout.mode = mode;
              if (num_layouts % 5 == 0) layout.dense_tp = 1;
              if (num_layouts % 7 == 0) layout.layers_per_stage.assign(static_cast<size_t>(pp), 3);
              const std::string name = layout_name(layout);
              const auto again = parse_layout(name);
              ASSERT_TRUE(again.has_value()) << name;
              ASSERT_EQ(*again, layout) << name;
              ++num_layouts;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(num_layouts, 1000);
}

TEST(ParallelLayout, CanonicalNamesAreShort) {
  for (const char* name : {"single", "tp8", "pp8", "ep8", "tep8", "pp2tp4", "pp2ep4", "tp4ep2", "dp2tp4ep8", "pp2tep4"})
    EXPECT_EQ(layout_name(*parse_layout(name)), name);
  EXPECT_EQ(layout_name(*parse_layout("dp8ep8")), "ep8");
  EXPECT_EQ(layout_name(*parse_layout("dp1tp8ep8:none")), "tep8");
  EXPECT_EQ(layout_name(*parse_layout("pp1tp1")), "single");
}

TEST(ParallelLayout, RefusesWhatIsNoName) {
  for (const char* name : {"",         "tp",        "tp0",        "tp-2",         "tp4x",
                           "xp4",      "tp4tp2",    "tep4ep2",    "tp99999",      "tp99999999999999999999",
                           "ep8:fast", "dp3tp2ep4", "pp2:layers", "pp2:layers4,", "pp2:layers4,x",
                           "single8",  "TP8",       " tp8",       "tp8:",         ":none"}) {
    const auto layout = parse_layout(name);
    ASSERT_FALSE(layout.has_value()) << name;
    EXPECT_EQ(layout.error().kind, ErrorKind::kInvalidRequest);
  }
  EXPECT_THAT(parse_layout("tp4q2").error().message, testing::HasSubstr("'q2' is not a part"));
}

TEST(ParallelLayout, TellsWhichAreBitwise) {
  for (const char* name : {"single", "pp8", "ep8", "pp2ep4", "ep2:mpi", "dp4"})
    EXPECT_EQ(parse_layout(name)->is_bitwise(), name != std::string("dp4")) << name;  // dp4 cuts experts in four
  for (const char* name : {"tp2", "tep8", "tp4ep2", "ep4:none"}) EXPECT_FALSE(parse_layout(name)->is_bitwise()) << name;
}

TEST(RankMap, PlacesEveryRankOnceInEveryGroup) {
  const ParallelLayout layout = *parse_layout("pp2dp2tp3ep2");  // 12 ranks, expert tp 3
  const RankCoordinates at = coordinates_of(layout, 10);
  EXPECT_EQ(at.stage, 1);
  EXPECT_EQ(at.rank_in_stage, 4);
  EXPECT_EQ(at.dp_group, 1);
  EXPECT_EQ(at.attention_tp_rank, 1);
  EXPECT_EQ(at.expert_rank, 1);
  EXPECT_EQ(at.expert_tp_rank, 1);
  EXPECT_THAT(attention_tp_group(layout, 10), testing::ElementsAre(9, 10, 11));
  EXPECT_THAT(stage_group(layout, 1), testing::ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_EQ(reporting_rank(layout, 0), 6);
  EXPECT_EQ(reporting_rank(layout, 1), 9);
}

TEST(RankMap, EvenPartsCoverEverything) {
  for (int64_t count : {0, 1, 7, 8, 163840}) {
    for (int64_t parts : {1, 2, 3, 8}) {
      int64_t end = 0;
      for (int64_t i = 0; i < parts; ++i) {
        const IndexRange part = even_part(count, parts, i);
        ASSERT_EQ(part.begin, end);
        ASSERT_GE(part.size(), count / parts);
        ASSERT_LE(part.size(), count / parts + 1);
        end = part.end;
      }
      ASSERT_EQ(end, count);
    }
  }
}

}  // namespace
}  // namespace gimbal
