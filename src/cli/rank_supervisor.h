// rank_supervisor: a small parent of every rank that mpirun starts. When a rank is killed (out of memory, a crash),
// mpirun reports only the signal; the parent says which rank it was and turns it into exit code 1.
#pragma once

#include <optional>

namespace gimbal {

// Under mpirun: forks. Returns nullopt in the child, which goes on as the rank; in the parent waits for the child and
// returns its exit code, or 1 after naming rank and signal. Elsewhere returns nullopt at once. To be called before any
// thread is started.
std::optional<int> supervise_rank();

}  // namespace gimbal
