#include "parallel/layout_check.h"

#include <chrono>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model_config/model_config.h"
#include "parallel/exchange_backends.h"
#include "parallel/layout_flags.h"
#include "settings/settings_table.h"

namespace gimbal {
namespace {

using testing::HasSubstr;

const std::filesystem::path kSource = GIMBAL_SOURCE_DIR;

class LayoutCheck : public testing::Test {
 protected:
  std::vector<std::string> rules(const std::string& name, int64_t redundant = 0) {
    std::vector<std::string> found;
    for (const LayoutViolation& violation :
         check_layout(*parse_layout(name), {.config = &mini_, .num_redundant_experts = redundant}))
      found.push_back(violation.rule);
    return found;
  }
  std::string refusal(const ModelConfig& config, const std::string& name, int64_t redundant = 0) {
    const Status status =
        require_valid_layout(*parse_layout(name), {.config = &config, .num_redundant_experts = redundant});
    return status ? "" : status.error().message;
  }
  ModelConfig mini_ = *read_model_config(kSource / "models/kimi-k2-mini");
  ModelConfig k26_ = *read_model_config(kSource / "share/models/kimi-k2.6-config");
};

TEST_F(LayoutCheck, TheLayoutsOfTheDesignWorkForBothModels) {
  for (const char* name :
       {"single", "tp8", "pp8", "ep8", "tep8", "pp2tp4", "pp2ep4", "tp4ep2", "dp2tp4ep8", "tp2", "ep3"}) {
    EXPECT_EQ(refusal(mini_, name), "") << name;
    EXPECT_EQ(refusal(k26_, name), "") << name;
  }
}

TEST_F(LayoutCheck, EveryViolatedRuleIsToldAtOnce) {
  const std::string text = refusal(mini_, "pp9tp5ep5");
  for (const char* part :
       {"pipeline stages: required at least one layer per stage, offered 8 layers for 9 stages, missing 1 layers",
        "attention heads: required a multiple of attention tp 5, offered 8, missing 2 more",
        "intermediate_size of dense layers: required a multiple of dense tp 5, offered 512",
        "width of the shared expert", "experts: required experts and redundant copies together a multiple of ep 5",
        "--ep-num-redundant-experts 1", "moe_intermediate_size: required a multiple of expert tp 5",
        "Nearest layouts that work: "})
    EXPECT_THAT(text, HasSubstr(part));
}

TEST_F(LayoutCheck, KnowsEachRule) {
  EXPECT_THAT(rules("tp16"), testing::Contains("attention heads"));
  EXPECT_THAT(rules("ep5"), testing::ElementsAre("experts"));
  EXPECT_TRUE(rules("ep5", 1).empty());
  EXPECT_THAT(rules("ep5", 2), testing::ElementsAre("experts"));
  EXPECT_THAT(rules("tp2", 2), testing::ElementsAre("--ep-num-redundant-experts"));
  EXPECT_THAT(rules("tp2:direct"), testing::ElementsAre("exchange direct"));
  EXPECT_THAT(rules("tep4:low_latency"), testing::ElementsAre("mode low_latency"));
  EXPECT_THAT(rules("pp2:layers3,3"), testing::ElementsAre("--pp-layer-partition"));
  EXPECT_THAT(rules("pp2:layers0,8"), testing::ElementsAre("--pp-layer-partition"));
  EXPECT_THAT(rules("ep385"), testing::Contains("expert parallel"));
  ParallelLayout layout = *parse_layout("tp8");
  layout.dense_tp = 4;
  EXPECT_EQ(check_layout(layout, {.config = &mini_})[0].rule, "--moe-dense-tp-size");
  layout.expert_tp = 4;
  EXPECT_EQ(check_layout(layout, {.config = &mini_})[0].rule, "ranks of a stage");
  layout.attention_tp = 0;
  EXPECT_EQ(check_layout(layout, {.config = &mini_})[0].rule, "sizes");
}

TEST_F(LayoutCheck, NearestLayoutsWorkAndAreNear) {
  for (const char* name : {"tp5", "ep7", "tp16", "pp9", "tp3ep5", "dp3tp5ep3"}) {
    const auto near = nearest_layouts(*parse_layout(name), {.config = &mini_}, 3);
    ASSERT_EQ(near.size(), 3u) << name;
    for (const ParallelLayout& layout : near) EXPECT_TRUE(check_layout(layout, {.config = &mini_}).empty());
  }
  EXPECT_EQ(layout_name(nearest_layouts(*parse_layout("pp9"), {.config = &mini_}, 1)[0]), "pp8");
}

TEST_F(LayoutCheck, ProcessesTakeOneRankEachAndShareNoMemory) {
  const Status status = require_valid_layout(*parse_layout("ep8"), {.config = &mini_, .num_processes = 4});
  ASSERT_FALSE(status.has_value());
  EXPECT_THAT(status.error().message, HasSubstr("exchange direct: required ranks that share memory"));
  EXPECT_THAT(status.error().message, HasSubstr("ranks: required 8 processes, offered 4 (mpirun -n)"));
  EXPECT_THAT(status.error().message, HasSubstr("Nearest layouts that work: ep4:mpi"));
  EXPECT_TRUE(require_valid_layout(*parse_layout("ep4:mpi"), {.config = &mini_, .num_processes = 4}).has_value());
}

TEST_F(LayoutCheck, AllValidLayoutsOfAWorldAreDifferentAndValid) {
  const auto layouts = valid_layouts({.config = &mini_}, 8);
  EXPECT_GE(layouts.size(), 40u);
  std::set<std::string> names;
  for (const ParallelLayout& layout : layouts) {
    EXPECT_EQ(layout.world_size(), 8);
    names.insert(layout_name(layout));
  }
  EXPECT_EQ(names.size(), layouts.size());
}

class LayoutFlags : public LayoutCheck {
 protected:
  Result<LayoutChoice> choose(const std::function<void(Settings&)>& change) {
    Settings settings = default_settings();
    change(settings);
    return choose_layout(settings);
  }
  std::string name(const std::function<void(Settings&)>& change) {
    const auto choice = choose(change);
    if (!choice) return choice.error().message;
    return choice->violations.empty() ? layout_name(choice->layout) : describe_violations(choice->violations);
  }
};

TEST_F(LayoutFlags, SglangsFlagsMeanTheSameHere) {
  EXPECT_EQ(name([](Settings&) {}), "single");
  EXPECT_EQ(name([](Settings& s) { s.tp_size = 8; }), "tp8");
  EXPECT_EQ(name([](Settings& s) { s.pp_size = 8; }), "pp8");
  EXPECT_EQ(name([](Settings& s) { s.tp_size = s.ep_size = 8; }), "tep8");
  EXPECT_EQ(name([](Settings& s) { s.tp_size = s.ep_size = s.dp_size = 8, s.enable_dp_attention = true; }), "ep8:none");
  const auto deepep = [](Settings& s) {
    s.tp_size = s.dp_size = s.ep_size = 8;
    s.enable_dp_attention = true;
    s.moe_a2a_backend = "deepep";
  };
  EXPECT_EQ(name(deepep), "ep8");
  EXPECT_THAT(choose(deepep)->notes, testing::ElementsAre(HasSubstr("deepep")));
  EXPECT_EQ(name([](Settings& s) { s.tp_size = 8, s.ep_size = 2; }), "dp1tp8ep2:none");
  EXPECT_EQ(name([](Settings& s) { s.tp_size = 8, s.moe_dense_tp_size = "1"; }), "tp8:dense1");
  EXPECT_EQ(name([](Settings& s) { s.pp_size = 2, s.pp_layer_partition = "5,3"; }), "pp2:layers5,3");
  const auto raised = [](Settings& s) { s.tp_size = 4, s.moe_a2a_backend = "direct"; };
  EXPECT_EQ(name(raised), "dp1tp4ep4");
  EXPECT_THAT(choose(raised)->notes, testing::ElementsAre(HasSubstr("--ep-size is 4")));
  EXPECT_EQ(name([](Settings& s) { s.layout = "ep8", s.deepep_mode = "low_latency"; }), "ep8:low_latency");
}

TEST_F(LayoutFlags, ContradictionsAndSizesThatDoNotDivideAreRefused) {
  EXPECT_THAT(name([](Settings& s) { s.layout = "tp8", s.tp_size = 4; }), HasSubstr("contradicts --layout tp8"));
  EXPECT_THAT(name([](Settings& s) { s.layout = "ep8:direct", s.moe_a2a_backend = "none"; }), HasSubstr("contradicts"));
  EXPECT_THAT(name([](Settings& s) { s.dp_size = 2; }), HasSubstr("2 whole replicas"));
  EXPECT_THAT(name([](Settings& s) { s.tp_size = 8, s.dp_size = 3, s.ep_size = 5, s.enable_dp_attention = true; }),
              testing::AllOf(HasSubstr("--dp-size: required a divisor of --tp-size 8, offered 3"),
                             HasSubstr("--ep-size: required a divisor of --tp-size 8, offered 5")));
  EXPECT_THAT(name([](Settings& s) { s.moe_dense_tp_size = "many"; }), HasSubstr("allowed: none, 1"));
  EXPECT_THAT(name([](Settings& s) { s.moe_a2a_backend = "carrier-pigeon"; }), HasSubstr("Offered: direct, mpi, none"));
}

TEST_F(LayoutFlags, OtherServersExchangesAreExplained) {
  for (const char* backend : {"nixl", "mooncake", "mori", "flashinfer", "ascend_fuseep"}) {
    const std::string text = name([&](Settings& s) { s.tp_size = 8, s.moe_a2a_backend = backend; });
    EXPECT_THAT(text, HasSubstr("Required: a build with it. Offered: direct, mpi, none")) << backend;
    EXPECT_THAT(text, HasSubstr("Use --moe-a2a-backend direct")) << backend;
  }
}

TEST_F(LayoutCheck, ARefusalWithTheRealConfigTakesWellUnderASecond) {
  const auto start = std::chrono::steady_clock::now();
  const ModelConfig config = *read_model_config(kSource / "share/models/kimi-k2.6-config");
  EXPECT_NE(refusal(config, "pp7tp5ep11"), "");
  std::printf("read and refused in %.3f s\n",
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

}  // namespace
}  // namespace gimbal
