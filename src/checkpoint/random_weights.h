// Random weights: every byte is a function of (seed, tensor name, position) only, so that any part can be made by any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "parallel/weight_plan.h"

namespace gimbal {

// Parts of a tensor that are made separately must start at a multiple of this many bytes.
inline constexpr uint64_t kRandomPartBytes = 64;

// Fills `bytes` with the values of tensor `index` of `weight` (preferred type) from byte `begin` of the tensor on.
// `begin` is a multiple of kRandomPartBytes; begin + bytes.size() is at most the size of the tensor. Matrices have a
// standard deviation of about 1/sqrt(columns), so that activations keep their size; norms are near 1, the router bias
// is small. All values are finite. Only the types that a plan with announced formats prefers: bfloat16, float32, int32,
// int64, float8 e4m3.
void fill_random_tensor(const PlannedWeight& weight, size_t index, uint64_t seed, uint64_t begin,
                        std::span<std::byte> bytes);

}  // namespace gimbal
