// Latent attention in vector code. One source, compiled once per instruction set, chosen at run time.
//
// Work is cut into tasks of one head of one sequence (expanded) or of one row (absorbed). Every sum runs over
// dimensions or positions in rising order inside fixed vector lanes, so a row's result depends on its query and context
// only.
#include <algorithm>
#include <vector>

#include "attention/mla_attention_backend.h"
#include "ops/matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/mla_attention_cpu.cc"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace gimbal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;

HWY_INLINE float dot(const float* a, const float* b, int64_t count) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sums = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) sums = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sums);
  float sum = hn::GetLane(hn::SumOfLanes(d, sums));
  for (; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// y += factor * x
HWY_INLINE void add_scaled(float* y, const float* x, float factor, int64_t count) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factors = hn::Set(d, factor);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::MulAdd(factors, hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, y + i);
  for (; i < count; ++i) y[i] += factor * x[i];
}

// Turns scores into exp(score - highest) in place and returns their sum. `scores` has room for a vector behind `count`.
HWY_INLINE float exponentiate(float* scores, int64_t count) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const float highest = *std::max_element(scores, scores + count);
  std::fill(scores + count, scores + count + lanes, highest);  // padding stays in exp's good range
  float sum = 0.0f;
  for (int64_t i = 0; i < count; i += lanes) {
    // Below -87 exp is zero to float's precision; hn::Exp is good only inside its range.
    const auto difference = hn::Max(hn::Sub(hn::LoadU(d, scores + i), hn::Set(d, highest)), hn::Set(d, -87.0f));
    hn::StoreU(hn::Exp(d, difference), d, scores + i);
  }
  for (int64_t i = 0; i < count; ++i) sum += scores[i];
  return sum;
}

HWY_INLINE const float* cached_token(const MlaAttentionArgs& args, const AttentionSequence& sequence,
                                     int64_t position) {
  const KvShape& cache = args.cache->shape();
  const PageId page = sequence.pages[static_cast<size_t>(position / cache.page_size)];
  return args.cache->page(args.layer, page) + position % cache.page_size * cache.width;
}

// Keys without rope part and values of one head for the whole context: expanded [context_length][nope_dim + value_dim].
HWY_INLINE void expand_context(const MlaAttentionArgs& args, const AttentionSequence& sequence, int64_t head,
                               float* expanded) {
  const int64_t width = args.shape.nope_dim + args.shape.value_dim;
  const int64_t page_size = args.cache->shape().page_size;
  const int64_t context_length = sequence.first_position + sequence.num_rows;
  for (int64_t position = 0; position < context_length; position += page_size) {
    const MatmulArgs matmul{.x = cached_token(args, sequence, position),
                            .num_rows = std::min(page_size, context_length - position),
                            .x_stride = args.cache->shape().width,
                            .weight = args.kv_up,
                            .y = expanded + position * width,
                            .y_stride = width};
    matmul_block_cpu({.args = matmul, .first_output = head * width, .end_output = (head + 1) * width});
  }
}

void attend_expanded(const MlaAttentionArgs& args, const AttentionSequence& sequence, int64_t head) {
  const MlaShape& shape = args.shape;
  const int64_t width = shape.nope_dim + shape.value_dim;
  const int64_t context_length = sequence.first_position + sequence.num_rows;
  std::vector<float> expanded(static_cast<size_t>(context_length * width));
  std::vector<float> weights(static_cast<size_t>(context_length) + hn::MaxLanes(Floats()));
  expand_context(args, sequence, head, expanded.data());
  for (int64_t row = 0; row < sequence.num_rows; ++row) {
    const int64_t at = (sequence.first_row + row) * shape.num_heads + head;
    const float* query = args.queries + at * shape.query_dim();
    const int64_t num_keys = sequence.first_position + row + 1;
    for (int64_t t = 0; t < num_keys; ++t) {
      const float nope = dot(query, expanded.data() + t * width, shape.nope_dim);
      const float rope =
          dot(query + shape.nope_dim, cached_token(args, sequence, t) + shape.latent_dim, shape.rope_dim);
      weights[static_cast<size_t>(t)] = (nope + rope) * static_cast<float>(shape.softmax_scale);
    }
    const float total = exponentiate(weights.data(), num_keys);
    float* output = args.output + at * shape.value_dim;
    std::fill(output, output + shape.value_dim, 0.0f);
    for (int64_t t = 0; t < num_keys; ++t) {
      add_scaled(output, expanded.data() + t * width + shape.nope_dim, weights[static_cast<size_t>(t)] / total,
                 shape.value_dim);
    }
  }
}

void attend_absorbed(const MlaAttentionArgs& args, const AttentionSequence& sequence, int64_t row, int64_t head) {
  const MlaShape& shape = args.shape;
  const int64_t at = (sequence.first_row + row) * shape.num_heads + head;
  const float* query = args.queries + at * shape.query_dim();
  const int64_t first_weight_row = head * (shape.nope_dim + shape.value_dim);
  const int64_t num_keys = sequence.first_position + row + 1;
  std::vector<float> weight_row(static_cast<size_t>(shape.latent_dim));
  std::vector<float> latent_query(static_cast<size_t>(shape.latent_dim), 0.0f);
  for (int64_t i = 0; i < shape.nope_dim; ++i) {
    decode_weight_row_cpu(args.kv_up, first_weight_row + i, weight_row.data());
    add_scaled(latent_query.data(), weight_row.data(), query[i], shape.latent_dim);
  }
  std::vector<float> weights(static_cast<size_t>(num_keys) + hn::MaxLanes(Floats()));
  for (int64_t t = 0; t < num_keys; ++t) {
    const float* cached = cached_token(args, sequence, t);
    const float nope = dot(latent_query.data(), cached, shape.latent_dim);
    const float rope = dot(query + shape.nope_dim, cached + shape.latent_dim, shape.rope_dim);
    weights[static_cast<size_t>(t)] = (nope + rope) * static_cast<float>(shape.softmax_scale);
  }
  const float total = exponentiate(weights.data(), num_keys);
  std::vector<float> latent(static_cast<size_t>(shape.latent_dim), 0.0f);
  for (int64_t t = 0; t < num_keys; ++t) {
    add_scaled(latent.data(), cached_token(args, sequence, t), weights[static_cast<size_t>(t)] / total,
               shape.latent_dim);
  }
  const MatmulArgs matmul{.x = latent.data(),
                          .num_rows = 1,
                          .x_stride = shape.latent_dim,
                          .weight = args.kv_up,
                          .y = args.output + at * shape.value_dim,
                          .y_stride = shape.value_dim};
  const int64_t first_output = first_weight_row + shape.nope_dim;
  matmul_block_cpu({.args = matmul, .first_output = first_output, .end_output = first_output + shape.value_dim});
}

}  // namespace HWY_NAMESPACE
}  // namespace gimbal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gimbal {

HWY_EXPORT(attend_expanded);
HWY_EXPORT(attend_absorbed);

void mla_attention_cpu(const MlaAttentionArgs& args, ThreadTeam& team) {
  struct Task {
    const AttentionSequence* sequence;
    int64_t row;  // absorbed only
    int64_t head;
  };
  std::vector<Task> tasks;
  for (const AttentionSequence& sequence : args.sequences) {
    const int64_t num_parts =
        sequence.form == AttentionForm::kAbsorbed ? sequence.num_rows : std::min<int64_t>(1, sequence.num_rows);
    for (int64_t row = 0; row < num_parts; ++row) {
      for (int64_t head = 0; head < args.shape.num_heads; ++head) tasks.push_back({&sequence, row, head});
    }
  }
  team.run(static_cast<int64_t>(tasks.size()), [&](int64_t index, int) {
    const Task& task = tasks[static_cast<size_t>(index)];
    if (task.sequence->form == AttentionForm::kAbsorbed) {
      HWY_DYNAMIC_DISPATCH(attend_absorbed)(args, *task.sequence, task.row, task.head);
    } else {
      HWY_DYNAMIC_DISPATCH(attend_expanded)(args, *task.sequence, task.head);
    }
  });
}

}  // namespace gimbal
#endif  // HWY_ONCE
