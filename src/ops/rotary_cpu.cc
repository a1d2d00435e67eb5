// A few dozen values per token: the compiler's own code is enough here, no vector dispatch.
#include "ops/rotary.h"

namespace gimbal {

void rotary_cpu(const RotaryArgs& args) {
  const int64_t num_pairs = args.table->num_pairs;
  for (int64_t row = 0; row < args.num_rows; ++row) {
    const float* cosines = args.table->cosines.data() + row * num_pairs;
    const float* sines = args.table->sines.data() + row * num_pairs;
    for (int64_t head = 0; head < args.num_heads; ++head) {
      float* x = args.x + row * args.row_stride + head * args.head_stride;
      for (int64_t pair = 0; pair < num_pairs; ++pair) {
        const float even = x[2 * pair];
        const float odd = x[2 * pair + 1];
        x[2 * pair] = even * cosines[pair] - odd * sines[pair];
        x[2 * pair + 1] = even * sines[pair] + odd * cosines[pair];
      }
    }
  }
}

}  // namespace gimbal
