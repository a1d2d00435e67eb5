#include "ops/matmul.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "ops/instruction_sets_for_test.h"
#include "quantization/float8_block_codec.h"
#include "quantization/weight_slice.h"

namespace gimbal {
namespace {

// A random matrix of a format together with its memory.
struct OwnedMatrix {
  WeightMatrix view;
  std::vector<float> floats;
  std::vector<uint16_t> halves;
  std::vector<uint32_t> words;
  std::vector<uint8_t> codes;
};

std::vector<float> random_floats(size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

void fill_int4(OwnedMatrix& matrix, DataType scale_type, int64_t group_size, std::mt19937& random) {
  const int64_t words_per_row = ceil_div(matrix.view.columns, 8);
  matrix.words.resize(static_cast<size_t>(matrix.view.rows * words_per_row));
  for (uint32_t& word : matrix.words) word = static_cast<uint32_t>(random());
  const auto num_scales = static_cast<size_t>(matrix.view.rows * ceil_div(matrix.view.columns, group_size));
  matrix.floats = random_floats(num_scales, random);
  for (const float scale : matrix.floats) matrix.halves.push_back(float_to_bfloat16(scale));
  matrix.view.data = matrix.words.data();
  matrix.view.scale_type = scale_type;
  matrix.view.group_size = group_size;
  matrix.view.scales =
      scale_type == DataType::kFloat32 ? static_cast<const void*>(matrix.floats.data()) : matrix.halves.data();
}

void fill_float8(OwnedMatrix& matrix, std::mt19937& random) {
  const int64_t rows = matrix.view.rows, columns = matrix.view.columns;
  const auto values = random_floats(static_cast<size_t>(rows * columns), random);
  matrix.codes.resize(values.size());
  matrix.floats.resize(static_cast<size_t>(ceil_div(rows, kFloat8BlockSize) * ceil_div(columns, kFloat8BlockSize)));
  quantize_float8_blocks(
      {.values = values, .rows = rows, .columns = columns, .codes = matrix.codes, .scales = matrix.floats});
  matrix.view.data = matrix.codes.data();
  matrix.view.scales = matrix.floats.data();
}

struct MatrixKind {
  WeightFormat format;
  DataType scale_type = DataType::kBFloat16;
  int64_t group_size = 32;
};

OwnedMatrix random_matrix(const MatrixKind& kind, int64_t rows, int64_t columns, std::mt19937& random) {
  OwnedMatrix matrix;
  matrix.view.format = kind.format;
  matrix.view.rows = rows;
  matrix.view.columns = columns;
  if (kind.format == WeightFormat::kInt4Group) fill_int4(matrix, kind.scale_type, kind.group_size, random);
  if (kind.format == WeightFormat::kFloat8Block) fill_float8(matrix, random);
  if (kind.format == WeightFormat::kFloat32) {
    matrix.floats = random_floats(static_cast<size_t>(rows * columns), random);
    matrix.view.data = matrix.floats.data();
  }
  if (kind.format == WeightFormat::kBFloat16 || kind.format == WeightFormat::kFloat16) {
    for (int64_t i = 0; i < rows * columns; ++i) {
      const auto bits = static_cast<uint16_t>(random());
      const uint16_t small_half = static_cast<uint16_t>((bits & 0x83ff) | 0x3800);  // magnitude in [0.5, 1)
      const uint16_t small_bfloat = static_cast<uint16_t>((bits & 0x807f) | 0x3f00);
      matrix.halves.push_back(kind.format == WeightFormat::kFloat16 ? small_half : small_bfloat);
    }
    matrix.view.data = matrix.halves.data();
  }
  return matrix;
}

const std::vector<MatrixKind> kKinds = {
    {WeightFormat::kFloat32},
    {WeightFormat::kFloat16},
    {WeightFormat::kBFloat16},
    {WeightFormat::kFloat8Block},
    {WeightFormat::kInt4Group},
    {WeightFormat::kInt4Group, DataType::kFloat32, 32},
    {WeightFormat::kInt4Group, DataType::kBFloat16, 16},
    {WeightFormat::kInt4Group, DataType::kBFloat16, 128},
};

// Of a sum over this many columns, against one in double precision.
float tolerance(int64_t columns) { return 2e-5f * std::sqrt(static_cast<float>(columns)) * 4; }

std::vector<float> multiply(const WeightMatrix& weight, const std::vector<float>& x, int64_t num_rows,
                            OpBackend backend, int num_threads) {
  std::vector<float> y(static_cast<size_t>(num_rows * weight.rows), NAN);
  ThreadTeam team(num_threads);
  matmul({.x = x.data(),
          .num_rows = num_rows,
          .x_stride = weight.columns,
          .weight = weight,
          .y = y.data(),
          .y_stride = weight.rows},
         {.backend = backend, .team = &team});
  return y;
}

TEST(Matmul, BackendsAgreeInEveryFormatAndShape) {
  std::mt19937 random(11);
  for (const MatrixKind& kind : kKinds) {
    for (const auto& [rows, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 31}, {5, 32}, {2, 40}, {130, 129}, {9, 200}, {33, 256}}) {
      const OwnedMatrix weight = random_matrix(kind, rows, columns, random);
      for (const int64_t num_rows : {1, 2, 3, 4, 7, 8, 13}) {
        SCOPED_TRACE(testing::Message() << name_of(kind.format) << " " << rows << "x" << columns << " rows "
                                        << num_rows);
        const auto x = random_floats(static_cast<size_t>(num_rows * columns), random);
        const auto expected = multiply(weight.view, x, num_rows, OpBackend::kReference, 1);
        for_each_instruction_set([&] {
          const auto y = multiply(weight.view, x, num_rows, OpBackend::kCpu, 2);
          for (size_t i = 0; i < y.size(); ++i) {
            ASSERT_NEAR(y[i], expected[i], tolerance(columns)) << "element " << i;
          }
        });
      }
    }
  }
}

TEST(Matmul, ARowHasTheSameBitsInEveryBatchAndOnAnyThreads) {
  std::mt19937 random(12);
  constexpr int64_t kRows = 150, kColumns = 520, kBatch = 21;
  for (const MatrixKind& kind : kKinds) {
    SCOPED_TRACE(name_of(kind.format));
    const OwnedMatrix weight = random_matrix(kind, kRows, kColumns, random);
    const auto x = random_floats(kBatch * kColumns, random);
    for_each_instruction_set([&] {
      const auto together = multiply(weight.view, x, kBatch, OpBackend::kCpu, 3);
      for (int64_t row = 0; row < kBatch; ++row) {
        const std::vector<float> alone_x(x.begin() + row * kColumns, x.begin() + (row + 1) * kColumns);
        const auto alone = multiply(weight.view, alone_x, 1, OpBackend::kCpu, 1);
        ASSERT_EQ(std::memcmp(alone.data(), together.data() + row * kRows, kRows * sizeof(float)), 0) << "row " << row;
      }
    });
  }
}

TEST(Matmul, ABlockIsAPartOfTheWhole) {
  std::mt19937 random(13);
  const OwnedMatrix weight = random_matrix({WeightFormat::kInt4Group}, 64, 96, random);
  const auto x = random_floats(3 * 96, random);
  const auto whole = multiply(weight.view, x, 3, OpBackend::kCpu, 1);
  std::vector<float> part(3 * 7);
  matmul_block_cpu(
      {.args = {.x = x.data(), .num_rows = 3, .x_stride = 96, .weight = weight.view, .y = part.data(), .y_stride = 7},
       .first_output = 30,
       .end_output = 37});
  for (size_t row = 0; row < 3; ++row) {
    for (size_t i = 0; i < 7; ++i) EXPECT_EQ(part[row * 7 + i], whole[row * 64 + 30 + i]);
  }
}

TEST(Matmul, DecodedRowsAreExact) {
  std::mt19937 random(14);
  for (const MatrixKind& kind : kKinds) {
    const OwnedMatrix weight = random_matrix(kind, 131, 200, random);
    for_each_instruction_set([&] {
      std::vector<float> row(200);
      for (const int64_t output : {int64_t{0}, int64_t{130}}) {
        decode_weight_row_cpu(weight.view, output, row.data());
        for (int64_t column = 0; column < 200; ++column) {
          ASSERT_EQ(row[static_cast<size_t>(column)], dequantize_element(weight.view, output, column))
              << name_of(kind.format) << " " << column;
        }
      }
    });
  }
}

struct OwnedSlice {
  std::vector<std::byte> memory;
  WeightMatrix view;
};

OwnedSlice copied(const WeightMatrix& whole, const WeightSlice& slice) {
  OwnedSlice copy{.memory = std::vector<std::byte>(slice_memory_bytes(whole, slice)), .view = {}};
  copy.view = copy_slice(whole, slice, copy.memory);
  return copy;
}

// Slices of a matrix of 140 x 300 that begin and end inside words, vectors, groups and blocks.
std::vector<WeightSlice> awkward_slices() {
  std::vector<WeightSlice> slices;
  for (const int64_t begin : {0, 4, 8, 12, 16, 24, 31, 33, 64, 121}) {
    for (const int64_t width : {1, 4, 7, 24, 64, 179}) slices.push_back({125, 134, begin, begin + width});
  }
  return slices;
}

std::vector<float> widened(const WeightMatrix& weight) {
  std::vector<float> values;
  for (int64_t row = 0; row < weight.rows; ++row) {
    for (int64_t column = 0; column < weight.columns; ++column)
      values.push_back(dequantize_element(weight, row, column));
  }
  return values;
}

TEST(Matmul, SlicesAgreeWithTheReference) {
  const unsigned seed = 15;
  std::mt19937 random(seed);
  for (const MatrixKind& kind : kKinds) {
    const OwnedMatrix whole = random_matrix(kind, 140, 300, random);
    for (const WeightSlice& wanted : awkward_slices()) {
      const OwnedSlice slice = copied(whole.view, wanted);
      const int64_t columns = slice.view.columns;
      SCOPED_TRACE(testing::Message() << name_of(kind.format) << " seed " << seed << " columns " << wanted.column_begin
                                      << " to " << wanted.column_end);
      const std::vector<float> values = widened(slice.view);
      const WeightMatrix floats{.rows = slice.view.rows, .columns = columns, .data = values.data()};
      for (const int64_t num_rows : {1, 3, 9}) {
        const auto x = random_floats(static_cast<size_t>(num_rows * columns), random);
        const auto expected = multiply(slice.view, x, num_rows, OpBackend::kReference, 1);
        for_each_instruction_set([&] {
          const auto y = multiply(slice.view, x, num_rows, OpBackend::kCpu, 1);
          for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[i], tolerance(columns)) << "element " << i;
          // The order of the sum is that of every other matrix.
          ASSERT_EQ(y, multiply(floats, x, num_rows, OpBackend::kCpu, 1));
        });
      }
    }
  }
}

TEST(Matmul, DecodedRowsOfSlicesAreExact) {
  const unsigned seed = 16;
  std::mt19937 random(seed);
  for (const MatrixKind& kind : kKinds) {
    const OwnedMatrix whole = random_matrix(kind, 140, 300, random);
    const WeightMatrix rows = view_rows(whole.view, 5, 140);  // a slice of this one lies inside two cuts
    for (const WeightSlice& wanted : awkward_slices()) {
      SCOPED_TRACE(testing::Message() << name_of(kind.format) << " seed " << seed << " columns " << wanted.column_begin
                                      << " to " << wanted.column_end);
      const OwnedSlice slice = copied(rows, {0, 135, wanted.column_begin, wanted.column_end});
      for_each_instruction_set([&] {
        std::vector<float> row(static_cast<size_t>(slice.view.columns)), expected(row);
        for (const int64_t output : {0, 122, 123, 134}) {
          decode_weight_row_cpu(slice.view, output, row.data());
          for (int64_t column = 0; column < slice.view.columns; ++column)
            expected[static_cast<size_t>(column)] = dequantize_element(slice.view, output, column);
          ASSERT_EQ(std::memcmp(row.data(), expected.data(), row.size() * sizeof(float)), 0) << "row " << output;
        }
      });
    }
  }
}

TEST(Matmul, EightSlicesOfTheColumnsAddUpToTheWhole) {
  const unsigned seed = 17;
  constexpr int64_t kOutputs = 40, kBatch = 5;
  std::mt19937 random(seed);
  for (const MatrixKind& kind : kKinds) {
    for (const int64_t columns : {32, 104, 256, 1000}) {
      SCOPED_TRACE(testing::Message() << name_of(kind.format) << " seed " << seed << " " << columns << " columns");
      const OwnedMatrix whole = random_matrix(kind, kOutputs, columns, random);
      const auto x = random_floats(static_cast<size_t>(kBatch * columns), random);
      const auto expected = multiply(whole.view, x, kBatch, OpBackend::kReference, 1);
      for_each_instruction_set([&] {
        std::vector<float> sum(expected.size());
        for (int64_t part = 0; part < 8; ++part) {
          const int64_t begin = columns * part / 8, end = columns * (part + 1) / 8;
          const OwnedSlice slice = copied(whole.view, {0, kOutputs, begin, end});
          std::vector<float> part_x;
          for (int64_t row = 0; row < kBatch; ++row)
            part_x.insert(part_x.end(), x.begin() + row * columns + begin, x.begin() + row * columns + end);
          const auto y = multiply(slice.view, part_x, kBatch, OpBackend::kCpu, 1);
          for (size_t i = 0; i < y.size(); ++i) sum[i] += y[i];
        }
        for (size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(sum[i], expected[i], tolerance(columns)) << "element " << i;
      });
    }
  }
}

TEST(Matmul, Float8NotANumberStaysNotANumber) {
  std::vector<uint8_t> codes(32, 0x38);
  codes[5] = 0x7f;
  const std::vector<float> scales = {1.0f};
  const WeightMatrix weight{
      .format = WeightFormat::kFloat8Block, .rows = 1, .columns = 32, .data = codes.data(), .scales = scales.data()};
  for_each_instruction_set([&] {
    std::vector<float> row(32);
    decode_weight_row_cpu(weight, 0, row.data());
    EXPECT_TRUE(std::isnan(row[5]));
    EXPECT_EQ(row[4], 1.0f);
  });
}

}  // namespace
}  // namespace gimbal
