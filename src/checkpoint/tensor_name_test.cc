#include "checkpoint/tensor_name.h"

#include <gtest/gtest.h>

namespace gimbal {
namespace {

TEST(TensorName, BringsAllSpellingsToOne) {
  EXPECT_EQ(canonical_tensor_name("model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(canonical_tensor_name("language_model.model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(canonical_tensor_name("language_model.layers.3.mlp.gate.weight"), "model.layers.3.mlp.gate.weight");
  EXPECT_EQ(canonical_tensor_name("language_model.lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(canonical_tensor_name("language_model.embed_tokens.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(canonical_tensor_name("vision_tower.x"), "vision_tower.x");
}

TEST(TensorName, SkipsOnlyWhatCannotChangeTheText) {
  ModelConfig config;
  config.num_layers = 4;
  EXPECT_EQ(skip_reason("vision_tower.patch_embed.proj.weight", config), SkipReason::kVision);
  EXPECT_EQ(skip_reason("mm_projector.proj.0.weight", config), SkipReason::kVision);
  EXPECT_EQ(skip_reason("multi_modal_projector.x", config), SkipReason::kVision);
  EXPECT_EQ(skip_reason("model.layers.0.self_attn.rotary_emb.inv_freq", config), SkipReason::kRotaryTable);
  EXPECT_EQ(skip_reason("model.layers.4.eh_proj.weight", config), SkipReason::kNone);
  config.num_nextn_predict_layers = 1;
  EXPECT_EQ(skip_reason("model.layers.4.eh_proj.weight", config), SkipReason::kNextTokenPredict);
  EXPECT_EQ(skip_reason("model.layers.5.eh_proj.weight", config), SkipReason::kNone);
  EXPECT_EQ(skip_reason("model.layers.3.stray.weight", config), SkipReason::kNone);
  EXPECT_EQ(skip_reason("model.layers.4", config), SkipReason::kNone);
  EXPECT_EQ(skip_reason("model.layers.", config), SkipReason::kNone);
}

}  // namespace
}  // namespace gimbal
