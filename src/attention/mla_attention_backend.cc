#include "attention/mla_attention_backend.h"

#include <array>

#include "base/check.h"

namespace gimbal {

std::span<const BackendRecord<AttentionBackend>> attention_backends() {
  static constexpr std::array<BackendRecord<AttentionBackend>, 2> kRecords = {{
      {AttentionBackend::kCpu, "cpu",
       "paged latent attention in vector code, expanded for prompts, absorbed for decode"},
      {AttentionBackend::kReference, "reference", "plain loops in double precision, for comparison"},
  }};
  return kRecords;
}

void mla_attention(const MlaAttentionArgs& args, const AttentionContext& context) {
  const MlaShape& shape = args.shape;
  GIMBAL_CHECK_EQ(args.kv_up.rows, shape.num_heads * (shape.nope_dim + shape.value_dim));
  GIMBAL_CHECK_EQ(args.kv_up.columns, shape.latent_dim);
  GIMBAL_CHECK_EQ(args.cache->shape().width, shape.latent_dim + shape.rope_dim);
  for (const AttentionSequence& sequence : args.sequences) {
    const int64_t context_length = sequence.first_position + sequence.num_rows;
    GIMBAL_CHECK_LE(context_length, static_cast<int64_t>(sequence.pages.size()) * args.cache->shape().page_size);
  }
  if (context.backend == AttentionBackend::kReference) return mla_attention_reference(args);
  mla_attention_cpu(args, *context.team);
}

}  // namespace gimbal
