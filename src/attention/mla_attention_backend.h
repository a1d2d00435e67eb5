// Multi-head latent attention over the paged cache: the interface, the list of backends and the shapes.
//
// Per head h: W_UK_h [nope][latent] and W_UV_h [value][latent] are rows of kv_b_proj, [h * (nope + value), ...).
//   expanded: k_h = [W_UK_h c | kr], v_h = W_UV_h c, score = s * q_h . k_h          (prompts)
//   absorbed: qt_h = W_UK_h^T q_nope_h, score = s * (qt_h . c + q_rope_h . kr), o_h = W_UV_h sum_t p_t c_t   (decode)
// Both compute the same function and differ in rounding. A row's bits depend on its own query and its context, never on
// the other rows, on how a prompt is cut into chunks, or on threads. Source of the formulas: DeepSeek-V2 report,
// section 2.1.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv_cache/kv_storage.h"
#include "ops/op_context.h"
#include "quantization/weight_matrix.h"

namespace gimbal {

enum class AttentionForm { kExpanded, kAbsorbed };

enum class AttentionBackend { kCpu, kReference };

std::span<const BackendRecord<AttentionBackend>> attention_backends();

struct MlaShape {
  int64_t num_heads = 0;
  int64_t nope_dim = 0;    // qk_nope_head_dim
  int64_t rope_dim = 0;    // qk_rope_head_dim
  int64_t value_dim = 0;   // v_head_dim
  int64_t latent_dim = 0;  // kv_lora_rank
  double softmax_scale = 0;
  int64_t query_dim() const { return nope_dim + rope_dim; }
};

// The rows of one sequence in this step. Its keys up to first_position + num_rows are in the cache already.
struct AttentionSequence {
  int64_t first_row = 0;  // in queries and output
  int64_t num_rows = 0;
  int64_t first_position = 0;  // of the first row; a row attends to all positions up to its own
  std::span<const PageId> pages;
  AttentionForm form = AttentionForm::kExpanded;
};

struct MlaAttentionArgs {
  MlaShape shape;
  const float* queries = nullptr;  // [num_rows][num_heads][query_dim], rope part rotated
  WeightMatrix kv_up;              // kv_b_proj [num_heads * (nope_dim + value_dim)][latent_dim]
  const KvStorage* cache = nullptr;
  int64_t layer = 0;  // of the cache
  std::span<const AttentionSequence> sequences;
  float* output = nullptr;  // [num_rows][num_heads][value_dim]
};

struct AttentionContext {
  AttentionBackend backend = AttentionBackend::kCpu;
  ThreadTeam* team = nullptr;  // not owned
};

void mla_attention(const MlaAttentionArgs& args, const AttentionContext& context);
void mla_attention_cpu(const MlaAttentionArgs& args, ThreadTeam& team);
void mla_attention_reference(const MlaAttentionArgs& args);

}  // namespace gimbal
