#include "ops/embedding.h"
#include "ops/matmul.h"

namespace gimbal {

void embedding_cpu(const EmbeddingArgs& args) {
  float* y = args.y;
  for (const int32_t id : args.ids) {
    decode_weight_row_cpu(args.table, id, y);
    y += args.table.columns;
  }
}

}  // namespace gimbal
