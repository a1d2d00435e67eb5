#include "attention/mla_attention_backend.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "ops/instruction_sets_for_test.h"

namespace gimbal {
namespace {

// One layer with random weights and a cache whose pages are out of order.
struct Problem {
  MlaShape shape{
      .num_heads = 3, .nope_dim = 20, .rope_dim = 6, .value_dim = 9, .latent_dim = 37, .softmax_scale = 0.21};
  std::vector<uint16_t> kv_up;
  std::vector<float> queries;  // [context_length][heads][query_dim]
  std::vector<PageId> pages;
  KvStorage cache;
  int64_t context_length;

  explicit Problem(int64_t length)
      : cache(*KvStorage::allocate({.num_layers = 2, .num_pages = 40, .page_size = 4, .width = 43})),
        context_length(length) {
    std::mt19937 random(41);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < shape.num_heads * (shape.nope_dim + shape.value_dim) * shape.latent_dim; ++i) {
      kv_up.push_back(float_to_bfloat16(normal(random) * 0.3f));
    }
    for (int64_t i = 0; i < length * shape.num_heads * shape.query_dim(); ++i) queries.push_back(normal(random));
    for (PageId page = 0; page * 4 < length; ++page) pages.push_back(static_cast<PageId>((page * 7 + 3) % 40));
    for (int64_t position = 0; position < length; ++position) {
      float* token = cache.token(1, pages, position);
      for (int64_t i = 0; i < 43; ++i) token[i] = normal(random);
    }
  }

  // Attention of rows [first, end) in one call.
  std::vector<float> attend(int64_t first, int64_t end, AttentionForm form, AttentionBackend backend) const {
    const int64_t row_values = shape.num_heads * shape.value_dim;
    std::vector<float> output(static_cast<size_t>((end - first) * row_values), NAN);
    const std::vector<AttentionSequence> sequences = {
        {.first_row = 0, .num_rows = end - first, .first_position = first, .pages = pages, .form = form}};
    ThreadTeam team(2);
    mla_attention({.shape = shape,
                   .queries = queries.data() + first * shape.num_heads * shape.query_dim(),
                   .kv_up = {.format = WeightFormat::kBFloat16,
                             .rows = shape.num_heads * (shape.nope_dim + shape.value_dim),
                             .columns = shape.latent_dim,
                             .data = kv_up.data()},
                   .cache = &cache,
                   .layer = 1,
                   .sequences = sequences,
                   .output = output.data()},
                  {.backend = backend, .team = &team});
    return output;
  }
};

TEST(MlaAttention, BothFormsAgreeWithTheReference) {
  for (const int64_t length : {1, 3, 4, 5, 33}) {
    const Problem problem(length);
    const auto expected = problem.attend(0, length, AttentionForm::kExpanded, AttentionBackend::kReference);
    for (const AttentionForm form : {AttentionForm::kExpanded, AttentionForm::kAbsorbed}) {
      for_each_instruction_set([&] {
        const auto output = problem.attend(0, length, form, AttentionBackend::kCpu);
        for (size_t i = 0; i < output.size(); ++i)
          ASSERT_NEAR(output[i], expected[i], 2e-5f) << length << " element " << i;
      });
    }
  }
}

TEST(MlaAttention, ChunksGiveTheSameBits) {
  const Problem problem(29);
  const int64_t row_values = problem.shape.num_heads * problem.shape.value_dim;
  for (const AttentionForm form : {AttentionForm::kExpanded, AttentionForm::kAbsorbed}) {
    for_each_instruction_set([&] {
      const auto whole = problem.attend(0, 29, form, AttentionBackend::kCpu);
      for (const int64_t chunk : {1, 7, 16}) {
        for (int64_t first = 0; first < 29; first += chunk) {
          const int64_t end = std::min<int64_t>(29, first + chunk);
          const auto part = problem.attend(first, end, form, AttentionBackend::kCpu);
          ASSERT_EQ(std::memcmp(part.data(), whole.data() + first * row_values, part.size() * sizeof(float)), 0)
              << "chunk " << chunk << " from " << first;
        }
      }
    });
  }
}

TEST(MlaAttention, FarAwayScoresDoNotOverflow) {
  Problem problem(8);
  for (float& value : problem.queries) value *= 1000.0f;
  for (const AttentionForm form : {AttentionForm::kExpanded, AttentionForm::kAbsorbed}) {
    for (const float value : problem.attend(0, 8, form, AttentionBackend::kCpu)) ASSERT_TRUE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace gimbal
