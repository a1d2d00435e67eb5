// One-thread matrix products per weight format: GB/s of weights (decode, one row) and GFLOP/s (prompts, 64 rows).
// Compare with "read", the speed at which this machine reads the same bytes in the same run.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "ops/matmul.h"

namespace gimbal {
namespace {

constexpr int64_t kOutputs = 4096, kColumns = 7168;

struct OwnedMatrix {
  WeightMatrix matrix;
  std::vector<uint32_t> data;
  std::vector<uint32_t> scales;
  int64_t bytes = 0;
};

OwnedMatrix make_matrix(WeightFormat format) {
  OwnedMatrix weights;
  const int64_t bits = format == WeightFormat::kFloat32       ? 32
                       : format == WeightFormat::kInt4Group   ? 4
                       : format == WeightFormat::kFloat8Block ? 8
                                                              : 16;
  weights.bytes = kOutputs * kColumns * bits / 8;
  std::mt19937 random(1);
  weights.data.resize(static_cast<size_t>(weights.bytes / 4));
  for (uint32_t& word : weights.data)
    word = static_cast<uint32_t>(random()) & 0x3f7f3f7f;  // small finite numbers in every format
  const int64_t num_scales =
      format == WeightFormat::kInt4Group ? kOutputs * kColumns / 32 / 2 : kOutputs / 128 * (kColumns / 128);
  weights.scales.assign(static_cast<size_t>(num_scales), format == WeightFormat::kInt4Group ? 0x3c003c00 : 0x3c000000);
  if (format == WeightFormat::kInt4Group) weights.bytes += num_scales * 4;
  weights.matrix = {.format = format,
                    .rows = kOutputs,
                    .columns = kColumns,
                    .data = weights.data.data(),
                    .scales = weights.scales.data()};
  return weights;
}

void multiply(benchmark::State& state, WeightFormat format) {
  const OwnedMatrix weights = make_matrix(format);
  const int64_t num_rows = state.range(0);
  std::vector<float> x(static_cast<size_t>(num_rows * kColumns), 0.5f), y(static_cast<size_t>(num_rows * kOutputs));
  ThreadTeam team(1);
  for ([[maybe_unused]] auto _ : state) {
    matmul_cpu({.x = x.data(),
                .num_rows = num_rows,
                .x_stride = kColumns,
                .weight = weights.matrix,
                .y = y.data(),
                .y_stride = kOutputs},
               team);
    benchmark::DoNotOptimize(y.data());
  }
  state.SetBytesProcessed(state.iterations() * weights.bytes);
  state.counters["FLOP"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * 2.0 * static_cast<double>(num_rows * kOutputs * kColumns),
      benchmark::Counter::kIsRate, benchmark::Counter::OneK::kIs1000);
}

// Sums the bytes of a bfloat16 matrix: the bandwidth limit of one thread here and now.
void read(benchmark::State& state) {
  const OwnedMatrix weights = make_matrix(WeightFormat::kBFloat16);
  for ([[maybe_unused]] auto _ : state) {
    uint32_t sum = 0;
    for (const uint32_t word : weights.data) sum += word;
    benchmark::DoNotOptimize(sum);
  }
  state.SetBytesProcessed(state.iterations() * weights.bytes);
}

BENCHMARK(read);
BENCHMARK_CAPTURE(multiply, float32, WeightFormat::kFloat32)->Arg(1)->Arg(64);
BENCHMARK_CAPTURE(multiply, bfloat16, WeightFormat::kBFloat16)->Arg(1)->Arg(64);
BENCHMARK_CAPTURE(multiply, float8_block, WeightFormat::kFloat8Block)->Arg(1)->Arg(64);
BENCHMARK_CAPTURE(multiply, int4_group, WeightFormat::kInt4Group)->Arg(1)->Arg(64);

}  // namespace
}  // namespace gimbal
