#include "moe/expert_runner/expert_runner.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace gimbal {

std::span<const BackendRecord<ExpertRunnerKind>> expert_runners() {
  static constexpr std::array<BackendRecord<ExpertRunnerKind>, 2> kRecords = {{
      {ExpertRunnerKind::kCpuSimd, "cpu_simd", "grouped by expert, vector code on packed weights"},
      {ExpertRunnerKind::kReference, "reference", "plain loops in double precision, for comparison"},
  }};
  return kRecords;
}

void run_experts(const ExpertRunnerArgs& args, const ExpertRunnerContext& context) {
  GIMBAL_CHECK_EQ(args.batch->expert_begin.size(), args.experts.size() + 1);
  if (context.kind == ExpertRunnerKind::kReference) return run_experts_reference(args);
  run_experts_cpu_simd(args, *context.team);
}

void run_experts_reference(const ExpertRunnerArgs& args) {
  const auto product = [](const WeightMatrix& weight, const std::vector<double>& x) {
    std::vector<double> y(static_cast<size_t>(weight.rows), 0.0);
    for (int64_t row = 0; row < weight.rows; ++row) {
      for (int64_t column = 0; column < weight.columns; ++column) {
        y[static_cast<size_t>(row)] +=
            static_cast<double>(dequantize_element(weight, row, column)) * x[static_cast<size_t>(column)];
      }
    }
    return y;
  };
  for (size_t expert = 0; expert < args.experts.size(); ++expert) {
    const ExpertWeights& weights = args.experts[expert];
    const int64_t hidden_size = weights.gate.columns;
    for (int64_t row = args.batch->expert_begin[expert]; row < args.batch->expert_begin[expert + 1]; ++row) {
      const float* x_row = args.x + row * hidden_size;
      const std::vector<double> x(x_row, x_row + hidden_size);
      std::vector<double> middle = product(weights.gate, x);
      const std::vector<double> up = product(weights.up, x);
      for (size_t i = 0; i < middle.size(); ++i) middle[i] = middle[i] / (1.0 + std::exp(-middle[i])) * up[i];
      const std::vector<double> y = product(weights.down, middle);
      std::copy(y.begin(), y.end(), args.y + row * hidden_size);
    }
  }
}

void gather_rows(const ExpertMajorBatch& batch, const float* tokens, int64_t hidden_size, float* rows) {
  for (int64_t row = 0; row < batch.num_rows(); ++row) {
    const float* token = tokens + batch.row_token[static_cast<size_t>(row)] * hidden_size;
    std::copy(token, token + hidden_size, rows + row * hidden_size);
  }
}

}  // namespace gimbal
