// embedding: y[row] = table[ids[row]].
#pragma once

#include <cstdint>
#include <span>

#include "ops/op_context.h"
#include "quantization/weight_matrix.h"

namespace gimbal {

struct EmbeddingArgs {
  std::span<const int32_t> ids = {};  // [num_rows], each in [0, table.rows)
  WeightMatrix table;                 // [vocab_size][hidden_size]
  float* y = nullptr;                 // [num_rows][hidden_size]
};

void embedding(const EmbeddingArgs& args, const OpContext& context);
void embedding_cpu(const EmbeddingArgs& args);
void embedding_reference(const EmbeddingArgs& args);

}  // namespace gimbal
