// The definition, word for word, in double precision. The form does not matter here: both are the same function.
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/mla_attention_backend.h"

namespace gimbal {
namespace {

// Key [query_dim] and value [value_dim] of one head for one cached token.
struct KeyValue {
  std::vector<double> key;
  std::vector<double> value;
};

KeyValue expand(const MlaAttentionArgs& args, const float* cached, int64_t head) {
  const MlaShape& shape = args.shape;
  const int64_t first_row = head * (shape.nope_dim + shape.value_dim);
  KeyValue result;
  for (int64_t row = 0; row < shape.nope_dim + shape.value_dim; ++row) {
    double sum = 0.0;
    for (int64_t i = 0; i < shape.latent_dim; ++i) {
      sum += static_cast<double>(dequantize_element(args.kv_up, first_row + row, i)) * cached[i];
    }
    (row < shape.nope_dim ? result.key : result.value).push_back(sum);
  }
  result.key.insert(result.key.end(), cached + shape.latent_dim, cached + shape.latent_dim + shape.rope_dim);
  return result;
}

void attend(const MlaAttentionArgs& args, const std::vector<KeyValue>& context, const float* query, float* output) {
  std::vector<double> weights;
  for (const KeyValue& token : context) {
    double score = 0.0;
    for (size_t i = 0; i < token.key.size(); ++i) score += token.key[i] * query[i];
    weights.push_back(score * args.shape.softmax_scale);
  }
  const double highest = *std::max_element(weights.begin(), weights.end());
  double total = 0.0;
  for (double& weight : weights) total += weight = std::exp(weight - highest);
  for (int64_t i = 0; i < args.shape.value_dim; ++i) {
    double sum = 0.0;
    for (size_t t = 0; t < context.size(); ++t) sum += weights[t] * context[t].value[static_cast<size_t>(i)];
    output[i] = static_cast<float>(sum / total);
  }
}

}  // namespace

void mla_attention_reference(const MlaAttentionArgs& args) {
  const MlaShape& shape = args.shape;
  const KvShape& cache = args.cache->shape();
  for (const AttentionSequence& sequence : args.sequences) {
    for (int64_t head = 0; head < shape.num_heads; ++head) {
      std::vector<KeyValue> context;
      for (int64_t position = 0; position < sequence.first_position + sequence.num_rows; ++position) {
        const PageId page = sequence.pages[static_cast<size_t>(position / cache.page_size)];
        const float* cached = args.cache->page(args.layer, page) + position % cache.page_size * cache.width;
        context.push_back(expand(args, cached, head));
        if (position < sequence.first_position) continue;
        const int64_t row = sequence.first_row + position - sequence.first_position;
        const int64_t at = row * shape.num_heads + head;
        attend(args, context, args.queries + at * shape.query_dim(), args.output + at * shape.value_dim);
      }
    }
  }
}

}  // namespace gimbal
