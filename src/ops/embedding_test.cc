#include "ops/embedding.h"

#include <vector>

#include <gtest/gtest.h>

#include "ops/instruction_sets_for_test.h"

namespace gimbal {
namespace {

TEST(Embedding, CopiesTheRowsOfTheIds) {
  std::vector<uint16_t> table(3 * 37);
  for (size_t i = 0; i < table.size(); ++i) table[i] = float_to_bfloat16(static_cast<float>(i));
  const std::vector<int32_t> ids = {2, 0, 2};
  for (const auto& record : op_backends()) {
    for_each_instruction_set([&] {
      std::vector<float> y(3 * 37);
      embedding({.ids = ids,
                 .table = {.format = WeightFormat::kBFloat16, .rows = 3, .columns = 37, .data = table.data()},
                 .y = y.data()},
                {.backend = record.kind});
      for (size_t row = 0; row < 3; ++row) {
        for (size_t column = 0; column < 37; ++column) {
          ASSERT_EQ(y[row * 37 + column], static_cast<float>(static_cast<size_t>(ids[row]) * 37 + column))
              << record.name;
        }
      }
    });
  }
}

TEST(Embedding, APartOfTheTableGivesZerosForOtherIds) {
  const std::vector<float> table = {1, 2, 3, 4};  // ids 5 and 6
  const std::vector<int32_t> ids = {6, 4, 5, 7};
  for (const auto& record : op_backends()) {
    std::vector<float> y(8, -1.0f);
    embedding({.ids = ids,
               .first_id = 5,
               .table = {.format = WeightFormat::kFloat32, .rows = 2, .columns = 2, .data = table.data()},
               .y = y.data()},
              {.backend = record.kind});
    EXPECT_EQ(y, (std::vector<float>{3, 4, 0, 0, 1, 2, 0, 0})) << record.name;
  }
}

}  // namespace
}  // namespace gimbal
