// WeightSlice: a rectangle of a stored weight matrix, as tensor parallelism hands it to one rank. It may begin inside
// an int4 group or a float8 block; the phases of WeightMatrix then say where its scales apply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "quantization/weight_matrix.h"

namespace gimbal {

// Rows [row_begin, row_end) and columns [column_begin, column_end).
struct WeightSlice {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t column_begin = 0;
  int64_t column_end = 0;
  bool operator==(const WeightSlice&) const = default;
};

// In all functions `whole` may itself be a slice, and `slice` must lie inside it.

// Bytes of the slice's data and scales when it stands alone: int4 takes whole 32-bit words per row, and every scale
// that the slice touches counts. weight_shape tensors are not counted. Reads no data: pointers may be null.
uint64_t slice_bytes(const WeightMatrix& whole, const WeightSlice& slice);

// True when a view needs no copy: all columns are kept.
bool is_view(const WeightMatrix& whole, const WeightSlice& slice);

// Rows [row_begin, row_end) of the whole, all columns, in the whole's memory.
WeightMatrix view_rows(const WeightMatrix& whole, int64_t row_begin, int64_t row_end);

// What copy_slice needs: slice_bytes, and what aligns the scales. Reads no data.
uint64_t slice_memory_bytes(const WeightMatrix& whole, const WeightSlice& slice);

// The slice, copied to `memory`, which must be 4-byte aligned and outlive the result: data first, scales from the next
// multiple of 4. int4 is repacked, so that column 0 of the slice is the lowest nibble of word 0; the nibbles after the
// last column are 8, which stands for 0.
WeightMatrix copy_slice(const WeightMatrix& whole, const WeightSlice& slice, std::span<std::byte> memory);

}  // namespace gimbal
