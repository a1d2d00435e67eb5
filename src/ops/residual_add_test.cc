#include "ops/residual_add.h"

#include <vector>

#include <gtest/gtest.h>

namespace gimbal {
namespace {

TEST(ResidualAdd, AddsElementByElement) {
  for (const auto& record : op_backends()) {
    std::vector<float> x = {1, 2, 3, 4, 5};
    const std::vector<float> y = {10, 20, 30, 40, 50};
    residual_add({.x = x.data(), .y = y.data(), .count = 5}, {.backend = record.kind});
    EXPECT_EQ(x, (std::vector<float>{11, 22, 33, 44, 55})) << record.name;
  }
}

}  // namespace
}  // namespace gimbal
