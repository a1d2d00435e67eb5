#include "quantization/weight_slice.h"

#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "quantization/int4_group_codec.h"

namespace gimbal {
namespace {

struct MatrixKind {
  WeightFormat format;
  DataType scale_type = DataType::kBFloat16;
  int64_t group_size = 32;
};

const std::vector<MatrixKind> kKinds = {
    {WeightFormat::kFloat32},
    {WeightFormat::kFloat16},
    {WeightFormat::kBFloat16},
    {WeightFormat::kFloat8Block},
    {WeightFormat::kInt4Group, DataType::kBFloat16, 16},
    {WeightFormat::kInt4Group, DataType::kBFloat16, 32},
    {WeightFormat::kInt4Group, DataType::kFloat32, 32},
    {WeightFormat::kInt4Group, DataType::kFloat32, 64},
    {WeightFormat::kInt4Group, DataType::kBFloat16, 128},
};

// A matrix of random bits and normally distributed scales, with its memory.
struct OwnedMatrix {
  WeightMatrix view;
  std::vector<uint32_t> data;
  std::vector<float> float_scales;
  std::vector<uint16_t> bfloat_scales;
};

OwnedMatrix random_matrix(const MatrixKind& kind, int64_t rows, int64_t columns, std::mt19937& random) {
  OwnedMatrix matrix;
  matrix.view = {.format = kind.format,
                 .rows = rows,
                 .columns = columns,
                 .scale_type = kind.scale_type,
                 .group_size = kind.group_size};
  const uint64_t bytes = slice_bytes(matrix.view, {.row_end = rows, .column_end = columns});  // scales make it too many
  matrix.data.resize(bytes / 4 + 1);
  for (uint32_t& word : matrix.data) word = static_cast<uint32_t>(random());
  std::normal_distribution<float> normal;
  const int64_t scale_rows = kind.format == WeightFormat::kFloat8Block ? ceil_div(rows, kFloat8BlockSize) : rows;
  for (int64_t i = 0; i < scale_rows * scales_per_row(matrix.view); ++i) {
    matrix.float_scales.push_back(normal(random));
    matrix.bfloat_scales.push_back(float_to_bfloat16(matrix.float_scales.back()));
  }
  const bool small = kind.format == WeightFormat::kInt4Group && kind.scale_type == DataType::kBFloat16;
  matrix.view.data = matrix.data.data();
  matrix.view.scales = small ? static_cast<const void*>(matrix.bfloat_scales.data()) : matrix.float_scales.data();
  return matrix;
}

// Memory of exactly the size that a copy asks for, so that a sanitizer sees the first byte too many.
struct OwnedSlice {
  std::vector<std::byte> memory;
  WeightMatrix view;
};

OwnedSlice copied(const WeightMatrix& whole, const WeightSlice& slice) {
  OwnedSlice copy{.memory = std::vector<std::byte>(slice_memory_bytes(whole, slice)), .view = {}};
  copy.view = copy_slice(whole, slice, copy.memory);
  return copy;
}

// Bits, because random bits stand for NaN too.
uint32_t bits_of(const WeightMatrix& matrix, int64_t row, int64_t column) {
  return std::bit_cast<uint32_t>(dequantize_element(matrix, row, column));
}

void expect_same_values(const WeightMatrix& part, const WeightMatrix& whole, const WeightSlice& slice) {
  SCOPED_TRACE(testing::Message() << name_of(whole.format) << ", groups of " << whole.group_size << ", rows "
                                  << slice.row_begin << " to " << slice.row_end << ", columns " << slice.column_begin
                                  << " to " << slice.column_end);
  ASSERT_EQ(part.rows, slice.row_end - slice.row_begin);
  ASSERT_EQ(part.columns, slice.column_end - slice.column_begin);
  for (int64_t row = 0; row < part.rows; ++row) {
    for (int64_t column = 0; column < part.columns; ++column) {
      ASSERT_EQ(bits_of(part, row, column), bits_of(whole, slice.row_begin + row, slice.column_begin + column))
          << "element " << row << ", " << column;
    }
  }
}

// Column ranges that cut words, groups and blocks, in a matrix of 300 columns.
std::vector<WeightSlice> awkward_slices(int64_t rows) {
  std::vector<WeightSlice> slices;
  for (const int64_t begin : {0, 4, 12, 24, 31, 32, 33, 96, 127, 160}) {
    for (const int64_t width : {1, 4, 7, 8, 24, 32, 130, 140}) {
      for (const auto& [row_begin, row_end] :
           std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {rows - 1, rows}, {126, 131}}) {
        slices.push_back({row_begin, row_end, begin, begin + width});
      }
    }
  }
  return slices;
}

WeightSlice random_slice(const WeightMatrix& whole, std::mt19937& random) {
  const auto pick = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  WeightSlice slice;
  slice.row_begin = pick(0, whole.rows - 1);
  slice.row_end = pick(slice.row_begin + 1, whole.rows);
  slice.column_begin = pick(0, whole.columns - 1);
  slice.column_end = pick(slice.column_begin + 1, whole.columns);
  return slice;
}

TEST(WeightSlice, ACopyHasTheValuesOfTheWhole) {
  const unsigned seed = 21;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const MatrixKind& kind : kKinds) {
    const OwnedMatrix whole = random_matrix(kind, 140, 300, random);
    for (const WeightSlice& slice : awkward_slices(140)) {
      expect_same_values(copied(whole.view, slice).view, whole.view, slice);
    }
  }
}

TEST(WeightSlice, SlicesOfSlicesHaveTheValuesOfTheWhole) {
  for (unsigned seed = 100; seed < 140; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    for (const MatrixKind& kind : kKinds) {
      const OwnedMatrix whole = random_matrix(kind, 1 + static_cast<int64_t>(random() % 300),
                                              1 + static_cast<int64_t>(random() % 300), random);
      const WeightSlice first = random_slice(whole.view, random);
      const OwnedSlice outer = copied(whole.view, first);
      const WeightSlice second = random_slice(outer.view, random);
      const OwnedSlice inner = copied(outer.view, second);
      expect_same_values(inner.view, outer.view, second);
      const WeightMatrix rows = view_rows(outer.view, second.row_begin, second.row_end);
      const WeightSlice all_columns{second.row_begin, second.row_end, 0, outer.view.columns};
      expect_same_values(rows, outer.view, all_columns);
      expect_same_values(copied(rows, {0, rows.rows, second.column_begin, second.column_end}).view, outer.view, second);
    }
  }
}

TEST(WeightSlice, RowsAreViewedWithoutACopy) {
  std::mt19937 random(22);
  for (const MatrixKind& kind : kKinds) {
    const OwnedMatrix whole = random_matrix(kind, 270, 133, random);
    for (const auto& [begin, end] :
         std::vector<std::pair<int64_t, int64_t>>{{0, 270}, {0, 1}, {127, 129}, {128, 200}, {131, 270}, {269, 270}}) {
      const WeightSlice slice{begin, end, 0, 133};
      EXPECT_TRUE(is_view(whole.view, slice));
      const WeightMatrix view = view_rows(whole.view, begin, end);
      expect_same_values(view, whole.view, slice);
      EXPECT_GE(view.data, whole.view.data);
      EXPECT_LT(view.data, whole.data.data() + whole.data.size());
      EXPECT_EQ(view.first_row_in_block, kind.format == WeightFormat::kFloat8Block ? begin % kFloat8BlockSize : 0);
    }
  }
  const WeightMatrix shape{.rows = 2, .columns = 8};
  EXPECT_FALSE(is_view(shape, {.row_end = 2, .column_begin = 1, .column_end = 8}));
  EXPECT_FALSE(is_view(shape, {.row_end = 2, .column_end = 7}));
}

TEST(WeightSlice, PhasesSayWhereTheScalesBegin) {
  std::mt19937 random(23);
  const OwnedMatrix int4 = random_matrix({WeightFormat::kInt4Group}, 3, 128, random);
  const OwnedSlice narrow = copied(int4.view, {1, 3, 44, 72});
  EXPECT_EQ(narrow.view.first_column_in_group, 12);
  EXPECT_EQ(narrow.view.first_row_in_block, 0);
  EXPECT_EQ(scales_per_row(narrow.view), 2);
  const OwnedMatrix float8 = random_matrix({WeightFormat::kFloat8Block}, 300, 300, random);
  const OwnedSlice square = copied(float8.view, {130, 260, 120, 150});
  EXPECT_EQ(square.view.first_row_in_block, 2);
  EXPECT_EQ(square.view.first_column_in_group, 120);
  EXPECT_EQ(scales_per_row(square.view), 2);
}

TEST(WeightSlice, Int4IsRepackedFromTheLowestNibble) {
  std::vector<int8_t> values;
  for (int i = 0; i < 32; ++i) values.push_back(static_cast<int8_t>(i % 16 - 8));
  std::vector<uint32_t> words(4);
  pack_int4_row(values, words);
  const std::vector<float> scales = {1.0f};
  const WeightMatrix whole{.format = WeightFormat::kInt4Group,
                           .rows = 1,
                           .columns = 32,
                           .data = words.data(),
                           .scales = scales.data(),
                           .scale_type = DataType::kFloat32};
  const OwnedSlice slice = copied(whole, {0, 1, 3, 14});  // nibbles 3 to 13
  std::vector<uint32_t> repacked(2);
  std::memcpy(repacked.data(), slice.view.data, 8);
  EXPECT_EQ(repacked[0], 0xa9876543u);
  EXPECT_EQ(repacked[1], 0x88888dcbu);  // after the last column 8, which stands for 0
}

TEST(WeightSlice, BytesCountWholeWordsAndEveryScaleTouched) {
  WeightMatrix int4{.format = WeightFormat::kInt4Group, .rows = 5, .columns = 32};
  EXPECT_EQ(slice_bytes(int4, {0, 5, 0, 32}), 5u * (4 * 4 + 2));
  for (int64_t part = 0; part < 8; ++part) {  // four columns: one word and one scale a row
    EXPECT_EQ(slice_bytes(int4, {0, 5, 4 * part, 4 * part + 4}), 5u * (4 + 2)) << part;
  }
  int4.columns = 64;
  EXPECT_EQ(slice_bytes(int4, {0, 5, 28, 36}), 5u * (4 + 2 * 2));  // one word, two groups
  int4.scale_type = DataType::kFloat32;
  EXPECT_EQ(slice_bytes(int4, {2, 3, 28, 37}), 2u * 4 + 2 * 4);
  int4.first_column_in_group = 30;
  EXPECT_EQ(slice_bytes(int4, {2, 3, 0, 37}), 5u * 4 + 3 * 4);

  WeightMatrix float8{.format = WeightFormat::kFloat8Block, .rows = 300, .columns = 300};
  EXPECT_EQ(slice_bytes(float8, {0, 300, 0, 300}), 300u * 300 + 9 * 4);
  EXPECT_EQ(slice_bytes(float8, {127, 129, 127, 130}), 2u * 3 + 4 * 4);
  EXPECT_EQ(slice_memory_bytes(float8, {127, 129, 127, 130}), 8u + 4 * 4);  // the scales are aligned
  float8.first_row_in_block = 1;
  EXPECT_EQ(slice_bytes(float8, {127, 129, 127, 130}), 2u * 3 + 2 * 4);

  EXPECT_EQ(slice_bytes({.format = WeightFormat::kFloat32, .rows = 3, .columns = 9}, {1, 3, 4, 9}), 2u * 5 * 4);
  EXPECT_EQ(slice_bytes({.format = WeightFormat::kBFloat16, .rows = 3, .columns = 9}, {1, 3, 4, 9}), 2u * 5 * 2);
  EXPECT_EQ(slice_memory_bytes({.format = WeightFormat::kFloat16, .rows = 3, .columns = 9}, {0, 1, 4, 9}), 5u * 2);
}

TEST(WeightSlice, AnEmptySliceTakesNothing) {
  std::mt19937 random(24);
  for (const MatrixKind& kind : kKinds) {
    const OwnedMatrix whole = random_matrix(kind, 9, 40, random);
    for (const WeightSlice& slice : {WeightSlice{9, 9, 0, 40}, WeightSlice{0, 9, 40, 40}, WeightSlice{3, 3, 5, 5}}) {
      EXPECT_EQ(slice_memory_bytes(whole.view, slice), 0u);
      const WeightMatrix part = copy_slice(whole.view, slice, {});
      EXPECT_EQ(part.rows, slice.row_end - slice.row_begin);
      EXPECT_EQ(scales_per_row(part),
                ceil_div(part.columns, part.format == WeightFormat::kInt4Group ? part.group_size : kFloat8BlockSize));
    }
    EXPECT_EQ(view_rows(whole.view, 4, 4).rows, 0);
  }
}

TEST(WeightSliceDeathTest, RefusesWhatLiesOutside) {
  const WeightMatrix whole{.rows = 4, .columns = 4};
  EXPECT_DEATH((void)slice_bytes(whole, {0, 5, 0, 4}), "slice.row_end <= whole.rows");
  EXPECT_DEATH((void)slice_bytes(whole, {0, 4, 3, 2}), "slice.column_begin <= slice.column_end");
}

}  // namespace
}  // namespace gimbal
