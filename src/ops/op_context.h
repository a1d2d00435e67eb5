// OpContext: how an op runs: which backend, on which threads. Passed down by value or const reference, never global.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_team.h"

namespace gimbal {

enum class OpBackend { kCpu, kReference };

struct OpContext {
  OpBackend backend = OpBackend::kCpu;
  ThreadTeam* team = nullptr;  // not owned; one loop at a time
};

// One row of the list of an axis. `probe` prints it, a setting forces one.
template <typename Kind>
struct BackendRecord {
  Kind kind;
  std::string_view name;
  std::string_view description;
};

// The ops' backends in priority order.
std::span<const BackendRecord<OpBackend>> op_backends();

// Finds the record a setting asks for; "auto" gives the first. Anything else is refused with what is offered.
template <typename Kind>
Result<BackendRecord<Kind>> choose_backend(std::string_view flag, std::string_view requested,
                                           std::span<const BackendRecord<Kind>> records) {
  std::string offered = "auto";
  for (const BackendRecord<Kind>& record : records) {
    if (requested == "auto" || requested == record.name) return record;
    offered += ", ";
    offered += record.name;
  }
  return fail(Error::invalid(
      std::string(flag) + " " + std::string(requested) + " is not a backend of this build. Offered: " + offered + ".",
      std::string(flag)));
}

}  // namespace gimbal
