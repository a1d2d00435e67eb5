// Vector kernels of matmul. One source, compiled once per instruction set, chosen at run time.
//
// A tile is kRows x kOutputs accumulators. Columns are walked in chunks of 32: a codec widens 32 weights of one output
// to vectors of floats, which are multiplied into every row of the tile. Lane j of an accumulator sums the columns that
// are j modulo the vector length, in rising order; the lanes are summed at the end. Tile shape and threads never change
// that order.
#include <algorithm>
#include <vector>

#include "ops/matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/matmul_cpu.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "ops/weight_codecs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gimbal {
namespace HWY_NAMESPACE {

template <int kRows, int kOutputs, typename Codec>
HWY_INLINE void multiply_tile(const Codec& codec, const MatmulBlock& block, int64_t first_row, int64_t output) {
  const Floats d;
  const MatmulArgs& args = block.args;
  const float* x = args.x + first_row * args.x_stride;
  const int64_t columns = args.weight.columns;
  Vector sums[kRows * kOutputs];
  for (auto& sum : sums) sum = hn::Zero(d);
  int64_t column = 0;
  for (; column + kChunk <= columns; column += kChunk) {
    for (int n = 0; n < kOutputs; ++n) {
      Vector w[kVectorsPerChunk];
      codec.decode(output + n, column, w);
      for (int m = 0; m < kRows; ++m) {
        for (int v = 0; v < kVectorsPerChunk; ++v) {
          const Vector xv = hn::LoadU(d, x + m * args.x_stride + column + v * kLanes);
          sums[m * kOutputs + n] = hn::MulAdd(w[v], xv, sums[m * kOutputs + n]);
        }
      }
    }
  }
  if (column < columns) {
    for (int m = 0; m < kRows; ++m) {
      HWY_ALIGN float padded[kChunk] = {};
      std::copy(x + m * args.x_stride + column, x + m * args.x_stride + columns, padded);
      for (int n = 0; n < kOutputs; ++n) {
        Vector w[kVectorsPerChunk];
        codec.decode_tail(output + n, column, w);
        for (int v = 0; v < kVectorsPerChunk; ++v) {
          sums[m * kOutputs + n] = hn::MulAdd(w[v], hn::Load(d, padded + v * kLanes), sums[m * kOutputs + n]);
        }
      }
    }
  }
  for (int m = 0; m < kRows; ++m) {
    float* y = args.y + (first_row + m) * args.y_stride + (output - block.first_output);
    for (int n = 0; n < kOutputs; ++n) y[n] = hn::GetLane(hn::SumOfLanes(d, sums[m * kOutputs + n]));
  }
}

template <int kOutputs, typename Codec>
HWY_INLINE void multiply_all_rows(const Codec& codec, const MatmulBlock& block, int64_t output) {
  int64_t row = 0;
  for (; row + 4 <= block.args.num_rows; row += 4) multiply_tile<4, kOutputs>(codec, block, row, output);
  switch (block.args.num_rows - row) {
    case 3:
      return multiply_tile<3, kOutputs>(codec, block, row, output);
    case 2:
      return multiply_tile<2, kOutputs>(codec, block, row, output);
    case 1:
      return multiply_tile<1, kOutputs>(codec, block, row, output);
    default:
      return;
  }
}

template <typename Codec>
void multiply_block(const Codec& codec, const MatmulBlock& block) {
  int64_t output = block.first_output;
  for (; output + 2 <= block.end_output; output += 2) multiply_all_rows<2>(codec, block, output);
  if (output < block.end_output) multiply_all_rows<1>(codec, block, output);
}

// With many rows, widening a weight once per four rows costs more than the multiplications: widen a pair of outputs
// once.
template <typename Codec>
void multiply_block_widened(const Codec& codec, const MatmulBlock& block) {
  const int64_t columns = block.args.weight.columns;
  std::vector<float> widened(static_cast<size_t>(2 * columns));
  for (int64_t output = block.first_output; output < block.end_output; output += 2) {
    const int64_t count = std::min<int64_t>(2, block.end_output - output);
    for (int64_t n = 0; n < count; ++n) decode_row(codec, output + n, columns, widened.data() + n * columns);
    MatmulBlock pair = block;
    pair.args.weight = {.format = WeightFormat::kFloat32, .rows = count, .columns = columns, .data = widened.data()};
    pair.args.y = block.args.y + (output - block.first_output);
    pair.first_output = 0;
    pair.end_output = count;
    multiply_block(Float32Codec(pair.args.weight), pair);
  }
}

void matmul_block(const MatmulBlock& block) {
  constexpr int64_t kManyRows = 8;
  visit_codec(block.args.weight, [&]<typename Codec>(const Codec& codec) {
    // The rare slices whose vectors split scales always go the widened way: it has the same bits, and the tiles need
    // not be compiled for them.
    if constexpr (Codec::kSplitsScales) {
      multiply_block_widened(codec, block);
    } else if (block.args.num_rows >= kManyRows && block.args.weight.format != WeightFormat::kFloat32) {
      multiply_block_widened(codec, block);
    } else {
      multiply_block(codec, block);
    }
  });
}

void decode_weight_row(const WeightMatrix& weight, int64_t row, float* values) {
  visit_codec(weight, [&](const auto& codec) { decode_row(codec, row, weight.columns, values); });
}

}  // namespace HWY_NAMESPACE
}  // namespace gimbal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gimbal {

HWY_EXPORT(matmul_block);
HWY_EXPORT(decode_weight_row);

void matmul_block_cpu(const MatmulBlock& block) { HWY_DYNAMIC_DISPATCH(matmul_block)(block); }

void decode_weight_row_cpu(const WeightMatrix& weight, int64_t row, float* values) {
  HWY_DYNAMIC_DISPATCH(decode_weight_row)(weight, row, values);
}

}  // namespace gimbal
#endif  // HWY_ONCE
