// rotary: rotates adjacent pairs (2i, 2i+1) of the rope part of queries and keys by position * frequency_i.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/op_context.h"

namespace gimbal {

// cos and sin per row of a batch, computed once a step: angles in double, products rounded to float32.
struct RotationTable {
  int64_t num_pairs = 0;
  std::vector<float> cosines;  // [num_rows][num_pairs]
  std::vector<float> sines;    // [num_rows][num_pairs]
};

// `frequencies` [num_pairs] are those of the model (YaRN applied); `amplitude` multiplies cos and sin.
void make_rotation_table(std::span<const int64_t> positions, std::span<const double> frequencies, double amplitude,
                         RotationTable& table);

struct RotaryArgs {
  float* x = nullptr;  // [num_rows][num_heads], each head's rope part of 2 * num_pairs values at x + row * row_stride +
                       // head * head_stride
  int64_t num_rows = 0;
  int64_t row_stride = 0;
  int64_t num_heads = 0;
  int64_t head_stride = 0;
  const RotationTable* table = nullptr;  // row r of x uses row r of the table
};

void rotary(const RotaryArgs& args, const OpContext& context);
void rotary_cpu(const RotaryArgs& args);
void rotary_reference(const RotaryArgs& args);

}  // namespace gimbal
