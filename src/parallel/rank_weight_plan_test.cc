#include "parallel/rank_weight_plan.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/layout_check.h"
#include "parallel/stage_partition.h"

namespace gimbal {
namespace {

const std::filesystem::path kSource = GIMBAL_SOURCE_DIR;

class RankWeightPlanTest : public testing::Test {
 protected:
  struct Model {
    explicit Model(const char* folder) : config(*read_model_config(kSource / folder)), plan(make_weight_plan(config)) {}
    ModelConfig config;
    WeightPlan plan;
  };
  static std::vector<RankWeightPlan> plans(const Model& model, const std::string& name, int64_t redundant = 0) {
    const ParallelLayout layout = *parse_layout(name);
    const ExpertPlacement placement = ExpertPlacement::trivial({.num_layers = model.config.num_layers,
                                                                .num_experts = model.config.num_experts,
                                                                .num_redundant = redundant,
                                                                .num_ranks = layout.expert_parallel});
    std::vector<RankWeightPlan> ranks;
    for (int64_t rank = 0; rank < layout.world_size(); ++rank) {
      ranks.push_back(make_rank_weight_plan(
          {.plan = &model.plan, .config = &model.config, .layout = &layout, .placement = &placement}, rank));
    }
    return ranks;
  }
  static std::vector<double> gigabytes(const Model& model, const std::string& name) {
    std::vector<double> sizes;
    for (const RankWeightPlan& rank : plans(model, name)) sizes.push_back(static_cast<double>(rank.total_bytes) / 1e9);
    return sizes;
  }
  Model mini_{"models/kimi-k2-mini"};
};

TEST_F(RankWeightPlanTest, OneRankHoldsEverything) {
  const auto rank = plans(mini_, "single")[0];
  uint64_t shapes = 0;  // weight_shape tensors are read, not held
  for (const PlannedWeight& weight : mini_.plan.weights)
    shapes += weight.format == WeightFormat::kInt4Group ? weight.tensors[2].bytes() : 0;
  EXPECT_EQ(rank.total_bytes + shapes, mini_.plan.total_bytes);
  EXPECT_EQ(rank.weights.size(), mini_.plan.weights.size());
}

// In every layout each element of every matrix is held by at least one rank of a tensor-parallel group, exactly once
// where it is not replicated by design.
TEST_F(RankWeightPlanTest, SlicesCoverEveryMatrixOnce) {
  for (const int64_t world : {2, 4, 8}) {
    for (const ParallelLayout& layout : valid_layouts({.config = &mini_.config}, world)) {
      std::map<const PlannedWeight*, int64_t> held;
      std::map<const PlannedWeight*, int> first_holders;
      for (const RankWeightPlan& rank : plans(mini_, layout_name(layout))) {
        for (const RankWeight& weight : rank.weights) {
          first_holders[weight.weight] += weight.is_first_holder ? 1 : 0;
          const WeightSlice& slice = weight.slice;
          const int64_t columns = std::max<int64_t>(slice.column_end - slice.column_begin, 1);
          held[weight.weight] += (slice.row_end - slice.row_begin) * columns;
        }
      }
      for (const PlannedWeight& weight : mini_.plan.weights) {
        const int64_t elements = weight.rows * std::max<int64_t>(weight.columns, 1);
        int64_t copies = layout.stage_size();  // replicated in its stage
        switch (weight.role) {
          case WeightRole::kExpertGate:
          case WeightRole::kExpertUp:
          case WeightRole::kExpertDown:
            copies = 1;
            break;
          case WeightRole::kEmbedding:
          case WeightRole::kOutputHead:
          case WeightRole::kQueryUp:
          case WeightRole::kKeyValueUp:
          case WeightRole::kAttentionOutput:
            copies = layout.attention_dp;
            break;
          case WeightRole::kDenseGate:
          case WeightRole::kDenseUp:
          case WeightRole::kDenseDown:
          case WeightRole::kSharedGate:
          case WeightRole::kSharedUp:
          case WeightRole::kSharedDown:
            copies = layout.dense_tp == 1 ? layout.stage_size() : layout.attention_dp;
            break;
          default:
            break;
        }
        ASSERT_EQ(held[&weight], copies * elements) << layout_name(layout) << " " << weight.module;
        ASSERT_EQ(first_holders[&weight], 1) << layout_name(layout) << " " << weight.module;
      }
    }
  }
}

TEST_F(RankWeightPlanTest, ASliceThatCutsAGroupPaysItsScaleTwice) {
  for (const RankWeightPlan& rank : plans(mini_, "tp8")) {
    for (const RankWeight& weight : rank.weights) {
      if (weight.weight->role != WeightRole::kExpertDown) continue;
      EXPECT_EQ(weight.slice.column_end - weight.slice.column_begin, 4);  // of one group of 32
      EXPECT_EQ(weight.bytes, 128u * (4 + 2));                            // a word and a scale per row
    }
  }
}

TEST_F(RankWeightPlanTest, RedundantCopiesAreHeldWhereThePlacementSays) {
  const auto ranks = plans(mini_, "ep5", 1);
  std::map<int32_t, int> copies;
  for (const RankWeightPlan& rank : ranks) {
    std::map<int32_t, std::vector<int32_t>> slots;
    for (const RankWeight& weight : rank.weights) {
      if (weight.weight->role == WeightRole::kExpertGate) {
        slots[weight.weight->layer].push_back(weight.local_slot);
        if (weight.weight->layer == 1) ++copies[weight.weight->expert];
      }
    }
    ASSERT_EQ(slots.size(), 7u);
    for (auto& [layer, list] : slots) EXPECT_EQ(list.size(), 77u) << layer;
  }
  EXPECT_EQ(copies[0], 2);
  EXPECT_EQ(copies[1], 1);
  EXPECT_EQ(copies.size(), 384u);
}

// docs/layouts.md shows this table. Reference: facts of Kimi K2.6, int4 experts of 24.77 MB, other weights bfloat16.
TEST(RankWeightPlanOfKimiK26, BytesPerRankOfTheMainLayouts) {
  const ModelConfig config = *read_model_config(kSource / "share/models/kimi-k2.6-config");
  const WeightPlan plan = make_weight_plan(config);
  const auto measure = [&](const char* name) {
    const ParallelLayout layout = *parse_layout(name);
    const ExpertPlacement placement = ExpertPlacement::trivial(
        {.num_layers = 61, .num_experts = 384, .num_redundant = 0, .num_ranks = layout.expert_parallel});
    std::vector<double> sizes;
    for (int64_t rank = 0; rank < 8; ++rank) {
      sizes.push_back(
          static_cast<double>(make_rank_weight_plan(
                                  {.plan = &plan, .config = &config, .layout = &layout, .placement = &placement}, rank)
                                  .total_bytes) /
          1e9);
      std::printf("%-6s rank %ld %8.2f GB\n", name, rank, sizes.back());
    }
    return sizes;
  };
  using testing::AllOf;
  using testing::Each;
  using testing::Ge;
  using testing::Le;
  EXPECT_THAT(measure("tp8"), Each(AllOf(Ge(75.5), Le(76.5))));
  EXPECT_THAT(measure("ep8"), Each(AllOf(Ge(94.3), Le(95.3))));
  EXPECT_THAT(measure("tep8"), Each(AllOf(Ge(75.5), Le(76.5))));
  const std::vector<double> stages = measure("pp8");
  EXPECT_NEAR(*std::max_element(stages.begin(), stages.end()), 78.5, 0.5);
  EXPECT_NEAR(std::accumulate(stages.begin(), stages.end(), 0.0), 594.5, 1.5);
}

TEST(StagePartition, MakesTheLargestStageAsSmallAsItCanBe) {
  const auto cut = [](std::vector<uint64_t> layers, int64_t stages, uint64_t before = 0, uint64_t after = 0) {
    return even_partition({.layers = std::move(layers), .before_first = before, .after_last = after}, stages);
  };
  EXPECT_THAT(cut({1, 1, 1, 1}, 2), testing::ElementsAre(2, 2));
  EXPECT_THAT(cut({1, 1, 1, 1}, 4), testing::ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(cut({5, 1, 1, 1}, 2), testing::ElementsAre(1, 3));
  EXPECT_THAT(cut({1, 1, 1, 1}, 2, /*before=*/2), testing::ElementsAre(1, 3));
  EXPECT_THAT(cut({1, 1, 1, 1}, 2, 0, /*after=*/2), testing::ElementsAre(3, 1));
  EXPECT_THAT(
      cut({1, 1, 1, 1, 1, 1, 1}, 3),
      testing::AnyOf(testing::ElementsAre(2, 2, 3), testing::ElementsAre(2, 3, 2), testing::ElementsAre(3, 2, 2)));
}

}  // namespace
}  // namespace gimbal
