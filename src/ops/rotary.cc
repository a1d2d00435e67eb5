#include "ops/rotary.h"

#include <cmath>
#include <complex>

#include "base/check.h"

namespace gimbal {

void make_rotation_table(std::span<const int64_t> positions, std::span<const double> frequencies, double amplitude,
                         RotationTable& table) {
  table.num_pairs = static_cast<int64_t>(frequencies.size());
  table.cosines.resize(positions.size() * frequencies.size());
  table.sines.resize(table.cosines.size());
  size_t at = 0;
  for (const int64_t position : positions) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      table.cosines[at] = static_cast<float>(std::cos(angle) * amplitude);
      table.sines[at] = static_cast<float>(std::sin(angle) * amplitude);
      ++at;
    }
  }
}

void rotary(const RotaryArgs& args, const OpContext& context) {
  GIMBAL_CHECK(args.table != nullptr);
  GIMBAL_CHECK_LE(args.num_rows * args.table->num_pairs, static_cast<int64_t>(args.table->cosines.size()));
  if (context.backend == OpBackend::kReference) return rotary_reference(args);
  rotary_cpu(args);
}

void rotary_reference(const RotaryArgs& args) {
  const int64_t num_pairs = args.table->num_pairs;
  for (int64_t row = 0; row < args.num_rows; ++row) {
    for (int64_t head = 0; head < args.num_heads; ++head) {
      float* x = args.x + row * args.row_stride + head * args.head_stride;
      for (int64_t pair = 0; pair < num_pairs; ++pair) {
        const auto at = static_cast<size_t>(row * num_pairs + pair);
        const std::complex<double> turn(args.table->cosines[at], args.table->sines[at]);
        const std::complex<double> turned = std::complex<double>(x[2 * pair], x[2 * pair + 1]) * turn;
        x[2 * pair] = static_cast<float>(turned.real());
        x[2 * pair + 1] = static_cast<float>(turned.imag());
      }
    }
  }
}

}  // namespace gimbal
