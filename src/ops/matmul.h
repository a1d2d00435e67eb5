// matmul: y = x W^T for a stored weight matrix in any format.
//
// Batch-invariant: every output element is accumulated over the columns in one fixed order (per vector lane, then over
// the lanes) that depends neither on the other rows nor on threads or tiles.
#pragma once

#include <cstdint>

#include "ops/op_context.h"
#include "quantization/weight_matrix.h"

namespace gimbal {

struct MatmulArgs {
  const float* x = nullptr;  // [num_rows][weight.columns], row stride x_stride
  int64_t num_rows = 0;
  int64_t x_stride = 0;
  WeightMatrix weight;  // [outputs][columns]
  float* y = nullptr;   // [num_rows][weight.rows], row stride y_stride; must not overlap x
  int64_t y_stride = 0;
};

void matmul(const MatmulArgs& args, const OpContext& context);
void matmul_cpu(const MatmulArgs& args, ThreadTeam& team);
void matmul_reference(const MatmulArgs& args);

// The part of a matmul that one task does: outputs [first_output, end_output) of the weight.
// y[row * y_stride + (output - first_output)]. Same bits as the whole matmul. Single-threaded, for callers that have
// their own tasks.
struct MatmulBlock {
  MatmulArgs args;
  int64_t first_output = 0;
  int64_t end_output = 0;
};
void matmul_block_cpu(const MatmulBlock& block);

// Widens one row of the weight to floats [weight.columns].
void decode_weight_row_cpu(const WeightMatrix& weight, int64_t row, float* values);

}  // namespace gimbal
