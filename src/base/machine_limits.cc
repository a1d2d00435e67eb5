#include "base/machine_limits.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <vector>

#include <sched.h>
#include <unistd.h>

namespace gimbal {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

std::string first_line(const std::filesystem::path& path) {
  std::ifstream stream(path);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::optional<uint64_t> leading_number(const std::string& text) {
  std::istringstream stream(text);
  uint64_t value = 0;
  if (!(stream >> value)) return std::nullopt;
  return value;
}

// Folders of one cgroup hierarchy from the process's own group up to the mount, own group first. Inside a container the
// path in /proc/self/cgroup may name a folder that only the host sees; the mount itself is always among the results.
std::vector<std::filesystem::path> group_folders(const std::filesystem::path& mount, const std::string& group) {
  std::vector<std::filesystem::path> folders;
  std::filesystem::path relative = std::filesystem::path(group).relative_path();
  while (!relative.empty()) {
    folders.push_back(mount / relative);
    relative = relative.parent_path();
  }
  folders.push_back(mount);
  return folders;
}

struct GroupPaths {
  std::string unified;  // v2
  std::string cpu;      // v1
  std::string memory;   // v1
};

GroupPaths read_group_paths(const std::filesystem::path& root) {
  GroupPaths paths;
  std::ifstream stream(root / "proc/self/cgroup");
  for (std::string line; std::getline(stream, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") paths.unified = path;
    if (controllers.find(",cpu,") != std::string::npos) paths.cpu = path;
    if (controllers.find(",memory,") != std::string::npos) paths.memory = path;
  }
  return paths;
}

double read_cpu_quota(const std::filesystem::path& root, const GroupPaths& paths) {
  double quota = std::numeric_limits<double>::infinity();
  for (const auto& folder : group_folders(root / "sys/fs/cgroup", paths.unified)) {
    std::istringstream stream(first_line(folder / "cpu.max"));  // "200000 100000" or "max 100000"
    double limit = 0, period = 0;
    if (stream >> limit >> period && limit > 0 && period > 0) quota = std::min(quota, limit / period);
  }
  for (const char* mount : {"sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"}) {
    for (const auto& folder : group_folders(root / mount, paths.cpu)) {
      const auto limit = leading_number(first_line(folder / "cpu.cfs_quota_us"));  // "-1" reads as no number or as huge
      const auto period = leading_number(first_line(folder / "cpu.cfs_period_us"));
      if (!limit || !period || *limit == 0 || *period == 0 || *limit > (kNoLimit >> 1)) continue;
      quota = std::min(quota, static_cast<double>(*limit) / static_cast<double>(*period));
    }
  }
  return quota;
}

uint64_t read_memory_limit(const std::filesystem::path& root, const GroupPaths& paths) {
  uint64_t limit = kNoLimit;
  for (const auto& folder : group_folders(root / "sys/fs/cgroup", paths.unified)) {
    for (const char* name : {"memory.max", "memory.high"}) {
      if (const auto value = leading_number(first_line(folder / name))) limit = std::min(limit, *value);
    }
  }
  for (const auto& folder : group_folders(root / "sys/fs/cgroup/memory", paths.memory)) {
    if (const auto value = leading_number(first_line(folder / "memory.limit_in_bytes")))
      limit = std::min(limit, *value);
  }
  return limit;
}

int count_affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace

MachineLimits read_machine_limits(const std::filesystem::path& root) {
  MachineLimits limits;
  const GroupPaths paths = read_group_paths(root);
  limits.num_cpus = count_affinity();
  limits.cpus_from = "affinity";
  const double quota = read_cpu_quota(root, paths);
  if (std::isfinite(quota) && std::ceil(quota) < limits.num_cpus) {
    limits.num_cpus = std::max(1, static_cast<int>(std::ceil(quota)));
    limits.cpus_from = "cgroup quota";
  }
  limits.memory_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  limits.memory_from = "physical memory";
  const uint64_t memory_limit = read_memory_limit(root, paths);
  if (memory_limit < limits.memory_bytes) {
    limits.memory_bytes = memory_limit;
    limits.memory_from = "cgroup limit";
  }
  return limits;
}

}  // namespace gimbal
