#include "ops/embedding.h"

#include "base/check.h"

namespace gimbal {

void embedding(const EmbeddingArgs& args, const OpContext& context) {
  GIMBAL_CHECK(args.table.data != nullptr);
  if (context.backend == OpBackend::kReference) return embedding_reference(args);
  embedding_cpu(args);
}

void embedding_reference(const EmbeddingArgs& args) {
  float* y = args.y;
  for (const int32_t id : args.ids) {
    const int64_t row = embedding_row(args, id);
    for (int64_t column = 0; column < args.table.columns; ++column)
      *y++ = row < 0 ? 0.0f : dequantize_element(args.table, row, column);
  }
}

}  // namespace gimbal
