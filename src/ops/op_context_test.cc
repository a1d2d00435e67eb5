#include "ops/op_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gimbal {
namespace {

TEST(OpContext, AutoTakesTheFirstAndANameForcesIt) {
  EXPECT_EQ(choose_backend("--op-backend", "auto", op_backends())->kind, OpBackend::kCpu);
  EXPECT_EQ(choose_backend("--op-backend", "reference", op_backends())->kind, OpBackend::kReference);
}

TEST(OpContext, RefusalListsWhatIsOffered) {
  const auto refused = choose_backend("--op-backend", "triton", op_backends());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().kind, ErrorKind::kInvalidRequest);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("--op-backend triton"));
  EXPECT_THAT(refused.error().message, testing::HasSubstr("Offered: auto, cpu, reference."));
}

}  // namespace
}  // namespace gimbal
