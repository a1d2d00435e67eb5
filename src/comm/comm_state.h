// CommState: what one rank is doing in its communication, for error messages and for counting bytes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace gimbal {

enum class CommVerb : uint8_t {
  kIdle,  // not communicating
  kBarrier,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kSend,
  kReceive,
  kShare,
  kPut,
  kWaitSignal,
};
inline constexpr size_t kNumCommVerbs = 11;

std::string_view name_of(CommVerb verb);

// One per rank, used by all groups of that rank; the rank's own thread writes, others read it when they report a hang.
struct CommState {
  int world_rank = 0;
  int world_size = 1;
  std::atomic<uint64_t> step = 0;
  std::atomic<int64_t> layer = -1;  // -1: outside the layers
  std::atomic<CommVerb> verb = CommVerb::kIdle;
  // Calls and payload bytes that left this rank (an all_reduce counts its vector once), by verb. Own thread only.
  std::array<uint64_t, kNumCommVerbs> calls = {};
  std::array<uint64_t, kNumCommVerbs> bytes = {};
  std::array<double, kNumCommVerbs> seconds = {};  // waiting for peers included
};

// "all_reduce of layer 3, step 17"
std::string describe_position(const CommState& state);

}  // namespace gimbal
