#include "ops/embedding.h"

#include "base/check.h"

namespace gimbal {

void embedding(const EmbeddingArgs& args, const OpContext& context) {
  for (const int32_t id : args.ids) {
    GIMBAL_CHECK_GE(id, 0);
    GIMBAL_CHECK_LT(id, args.table.rows);
  }
  if (context.backend == OpBackend::kReference) return embedding_reference(args);
  embedding_cpu(args);
}

void embedding_reference(const EmbeddingArgs& args) {
  float* y = args.y;
  for (const int32_t id : args.ids) {
    for (int64_t column = 0; column < args.table.columns; ++column) *y++ = dequantize_element(args.table, id, column);
  }
}

}  // namespace gimbal
