// Values that make every later result wrong: infinities and NaN among norms, router biases and quantization scales.
#pragma once

#include "base/result.h"
#include "checkpoint/checkpoint.h"

namespace gimbal {

// Reads the tensors of one weight that are small and multiply everything: vectors (norms, router bias), int4 scales,
// float8 scales. The error names the tensor and the index of its first value that is not finite. Thread-safe.
Status verify_values(const Checkpoint& checkpoint, const PlannedWeight& weight);

// The same for the whole plan. Touches a tenth of an int4 checkpoint; the loader rather calls the function above while
// it goes through the weights.
Status verify_values(const Checkpoint& checkpoint);

}  // namespace gimbal
