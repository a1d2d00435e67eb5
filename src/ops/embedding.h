// embedding: y[row] = table[ids[row] - first_id]; a row of zeros for ids that the table does not hold.
#pragma once

#include <cstdint>
#include <span>

#include "ops/op_context.h"
#include "quantization/weight_matrix.h"

namespace gimbal {

struct EmbeddingArgs {
  std::span<const int32_t> ids = {};  // [num_rows]
  int64_t first_id = 0;               // of the table: a vocabulary-parallel rank holds a part
  WeightMatrix table;                 // [vocab_size or part][hidden_size]
  float* y = nullptr;                 // [num_rows][hidden_size]
};

void embedding(const EmbeddingArgs& args, const OpContext& context);
// The table's row of an id, -1 when it holds none.
inline int64_t embedding_row(const EmbeddingArgs& args, int32_t id) {
  const int64_t row = id - args.first_id;
  return row >= 0 && row < args.table.rows ? row : -1;
}

void embedding_cpu(const EmbeddingArgs& args);
void embedding_reference(const EmbeddingArgs& args);

}  // namespace gimbal
