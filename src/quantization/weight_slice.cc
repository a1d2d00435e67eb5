#include "quantization/weight_slice.h"

#include <cstring>

#include "base/check.h"

namespace gimbal {
namespace {

constexpr int64_t kNibblesPerWord = 8;
constexpr int64_t kScaleAlignment = 4;

// How the scales of a format lie over the elements: one per `rows` x `columns` elements. bytes is 0 without scales.
struct ScaleShape {
  int64_t rows = 1;
  int64_t columns = 1;
  int64_t bytes = 0;
};

ScaleShape scale_shape_of(const WeightMatrix& matrix) {
  switch (matrix.format) {
    case WeightFormat::kInt4Group:
      return {.rows = 1, .columns = matrix.group_size, .bytes = size_of(matrix.scale_type)};
    case WeightFormat::kFloat8Block:
      return {.rows = kFloat8BlockSize, .columns = kFloat8BlockSize, .bytes = int64_t{sizeof(float)}};
    case WeightFormat::kFloat32:
    case WeightFormat::kFloat16:
    case WeightFormat::kBFloat16:
      break;
  }
  return {};
}

int64_t bytes_of_columns(WeightFormat format, int64_t columns) {
  switch (format) {
    case WeightFormat::kFloat32:
      return columns * int64_t{sizeof(float)};
    case WeightFormat::kFloat16:
    case WeightFormat::kBFloat16:
      return columns * int64_t{sizeof(uint16_t)};
    case WeightFormat::kInt4Group:
      return ceil_div(columns, kNibblesPerWord) * int64_t{sizeof(uint32_t)};
    case WeightFormat::kFloat8Block:
      return columns;
  }
  return 0;
}

// The scales that a slice touches: rows and columns of the whole's scales, and where the slice begins in the first.
struct ScaleRange {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t first_column = 0;
  int64_t num_columns = 0;
  int64_t row_phase = 0;
  int64_t column_phase = 0;
};

ScaleRange scales_of_slice(const WeightMatrix& whole, const WeightSlice& slice) {
  // An empty slice has no phase, because nothing but its size tells that it touches no scale.
  if (slice.row_begin == slice.row_end || slice.column_begin == slice.column_end) return {};
  const ScaleShape shape = scale_shape_of(whole);
  const int64_t row = whole.first_row_in_block + slice.row_begin;
  const int64_t column = whole.first_column_in_group + slice.column_begin;
  ScaleRange range{.first_row = row / shape.rows,
                   .first_column = column / shape.columns,
                   .row_phase = row % shape.rows,
                   .column_phase = column % shape.columns};
  range.num_rows = ceil_div(range.row_phase + slice.row_end - slice.row_begin, shape.rows);
  range.num_columns = ceil_div(range.column_phase + slice.column_end - slice.column_begin, shape.columns);
  return range;
}

struct SliceSize {
  int64_t data_bytes = 0;
  int64_t scale_bytes = 0;
  int64_t scales_at() const { return ceil_div(data_bytes, kScaleAlignment) * kScaleAlignment; }
};

SliceSize size_of_slice(const WeightMatrix& whole, const WeightSlice& slice) {
  GIMBAL_CHECK_LE(0, slice.row_begin);
  GIMBAL_CHECK_LE(slice.row_begin, slice.row_end);
  GIMBAL_CHECK_LE(slice.row_end, whole.rows);
  GIMBAL_CHECK_LE(0, slice.column_begin);
  GIMBAL_CHECK_LE(slice.column_begin, slice.column_end);
  GIMBAL_CHECK_LE(slice.column_end, whole.columns);
  const ScaleRange scales = scales_of_slice(whole, slice);
  const int64_t row_bytes = bytes_of_columns(whole.format, slice.column_end - slice.column_begin);
  return {.data_bytes = (slice.row_end - slice.row_begin) * row_bytes,
          .scale_bytes = scales.num_rows * scales.num_columns * scale_shape_of(whole).bytes};
}

// The slice with its shape and phases, and no memory yet.
WeightMatrix shape_of_slice(const WeightMatrix& whole, const WeightSlice& slice) {
  const ScaleRange scales = scales_of_slice(whole, slice);
  WeightMatrix matrix = whole;
  matrix.rows = slice.row_end - slice.row_begin;
  matrix.columns = slice.column_end - slice.column_begin;
  matrix.first_row_in_block = scales.row_phase;
  matrix.first_column_in_group = scales.column_phase;
  matrix.data = nullptr;
  matrix.scales = nullptr;
  return matrix;
}

// Moves the nibbles of columns [first, first + count) to the beginning of `to`, ceil(count/8) words.
void copy_nibbles(std::span<const uint32_t> from, int64_t first, int64_t count, uint32_t* to) {
  const auto shift = static_cast<uint32_t>(4 * (first % kNibblesPerWord));
  const int64_t num_words = ceil_div(count, kNibblesPerWord);
  for (int64_t k = 0; k < num_words; ++k) {
    const auto at = static_cast<size_t>(first / kNibblesPerWord + k);
    uint32_t word = from[at] >> shift;
    if (shift != 0 && at + 1 < from.size()) word |= from[at + 1] << (32 - shift);
    to[k] = word;
  }
  if (const int64_t used = count % kNibblesPerWord; used != 0) {
    const uint32_t mask = (uint32_t{1} << (4 * used)) - 1;
    to[num_words - 1] = (to[num_words - 1] & mask) | (0x88888888u & ~mask);
  }
}

void copy_data(const WeightMatrix& whole, const WeightSlice& slice, std::byte* to) {
  const int64_t columns = slice.column_end - slice.column_begin;
  const int64_t whole_row_bytes = bytes_of_columns(whole.format, whole.columns);
  const int64_t row_bytes = bytes_of_columns(whole.format, columns);
  if (row_bytes == 0) return;
  for (int64_t row = slice.row_begin; row < slice.row_end; ++row, to += row_bytes) {
    const std::byte* from = static_cast<const std::byte*>(whole.data) + row * whole_row_bytes;
    if (whole.format == WeightFormat::kInt4Group) {
      const std::span words(reinterpret_cast<const uint32_t*>(from),
                            static_cast<size_t>(whole_row_bytes) / sizeof(uint32_t));
      copy_nibbles(words, slice.column_begin, columns, reinterpret_cast<uint32_t*>(to));
    } else {
      from += bytes_of_columns(whole.format, slice.column_begin);
      std::memcpy(to, from, static_cast<size_t>(row_bytes));
    }
  }
}

void copy_scales(const WeightMatrix& whole, const WeightSlice& slice, std::byte* to) {
  const ScaleRange range = scales_of_slice(whole, slice);
  const int64_t bytes = scale_shape_of(whole).bytes;
  const int64_t row_bytes = range.num_columns * bytes;
  for (int64_t row = 0; row < range.num_rows; ++row, to += row_bytes) {
    const int64_t at = (range.first_row + row) * scales_per_row(whole) + range.first_column;
    std::memcpy(to, static_cast<const std::byte*>(whole.scales) + at * bytes, static_cast<size_t>(row_bytes));
  }
}

}  // namespace

uint64_t slice_bytes(const WeightMatrix& whole, const WeightSlice& slice) {
  const SliceSize size = size_of_slice(whole, slice);
  return static_cast<uint64_t>(size.data_bytes + size.scale_bytes);
}

uint64_t slice_memory_bytes(const WeightMatrix& whole, const WeightSlice& slice) {
  const SliceSize size = size_of_slice(whole, slice);
  return static_cast<uint64_t>(size.scale_bytes == 0 ? size.data_bytes : size.scales_at() + size.scale_bytes);
}

bool is_view(const WeightMatrix& whole, const WeightSlice& slice) {
  return slice.column_begin == 0 && slice.column_end == whole.columns;
}

WeightMatrix view_rows(const WeightMatrix& whole, int64_t row_begin, int64_t row_end) {
  const WeightSlice slice{.row_begin = row_begin, .row_end = row_end, .column_begin = 0, .column_end = whole.columns};
  const SliceSize size = size_of_slice(whole, slice);
  WeightMatrix matrix = shape_of_slice(whole, slice);
  if (size.data_bytes == 0) return matrix;
  matrix.data = static_cast<const std::byte*>(whole.data) + row_begin * bytes_of_columns(whole.format, whole.columns);
  if (size.scale_bytes == 0) return matrix;
  const int64_t first_scale = scales_of_slice(whole, slice).first_row * scales_per_row(whole);
  matrix.scales = static_cast<const std::byte*>(whole.scales) + first_scale * scale_shape_of(whole).bytes;
  return matrix;
}

WeightMatrix copy_slice(const WeightMatrix& whole, const WeightSlice& slice, std::span<std::byte> memory) {
  GIMBAL_CHECK_LE(slice_memory_bytes(whole, slice), memory.size());
  GIMBAL_CHECK_EQ(reinterpret_cast<uintptr_t>(memory.data()) % kScaleAlignment, 0u);
  const SliceSize size = size_of_slice(whole, slice);
  WeightMatrix matrix = shape_of_slice(whole, slice);
  copy_data(whole, slice, memory.data());
  matrix.data = memory.data();
  if (size.scale_bytes == 0) return matrix;
  std::byte* scales = memory.data() + size.scales_at();
  copy_scales(whole, slice, scales);
  matrix.scales = scales;
  return matrix;
}

}  // namespace gimbal
