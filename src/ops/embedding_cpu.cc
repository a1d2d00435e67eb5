#include <algorithm>

#include "ops/embedding.h"
#include "ops/matmul.h"

namespace gimbal {

void embedding_cpu(const EmbeddingArgs& args) {
  float* y = args.y;
  for (const int32_t id : args.ids) {
    if (const int64_t row = embedding_row(args, id); row >= 0) {
      decode_weight_row_cpu(args.table, row, y);
    } else {
      std::fill(y, y + args.table.columns, 0.0f);
    }
    y += args.table.columns;
  }
}

}  // namespace gimbal
