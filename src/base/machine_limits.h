// What this process may really use: processors and memory after affinity and container limits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace gimbal {

struct MachineLimits {
  int num_cpus = 1;           // usable processors: min(affinity, ceil(cgroup quota)), at least 1
  uint64_t memory_bytes = 0;  // min(physical memory, cgroup memory limit)
  std::string cpus_from;      // what set num_cpus: "affinity" or "cgroup quota"
  std::string memory_from;    // what set memory_bytes: "physical memory" or "cgroup limit"
};

// Reads affinity, physical memory and the cgroup (v2 cpu.max and memory.max along the path from the process's group to
// the root, v1 cpu.cfs_quota_us and memory.limit_in_bytes). `root` replaces "/" for /proc and /sys in tests.
MachineLimits read_machine_limits(const std::filesystem::path& root = "/");

}  // namespace gimbal
