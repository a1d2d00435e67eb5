#include "base/machine_limits.h"

#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

namespace gimbal {
namespace {

// A make-believe root with /proc/self/cgroup and /sys/fs/cgroup.
class MachineLimitsTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(testing::TempDir()) /
            ("machine_limits_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    std::filesystem::remove_all(root_);
  }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  std::filesystem::path root_;
};

TEST_F(MachineLimitsTest, WithoutGroupsTheMachineDecides) {
  const MachineLimits limits = read_machine_limits(root_);
  EXPECT_GE(limits.num_cpus, 1);
  EXPECT_EQ(limits.cpus_from, "affinity");
  EXPECT_EQ(limits.memory_bytes,
            static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE)));
}

TEST_F(MachineLimitsTest, ReadsTheTightestGroupOnThePath) {
  write("proc/self/cgroup", "0::/slice/unit");
  write("sys/fs/cgroup/slice/unit/cpu.max", "max 100000");
  write("sys/fs/cgroup/slice/cpu.max", "50000 100000");
  write("sys/fs/cgroup/slice/unit/memory.max", "max");
  write("sys/fs/cgroup/slice/memory.max", "1073741824");
  const MachineLimits limits = read_machine_limits(root_);
  EXPECT_EQ(limits.num_cpus, 1);
  EXPECT_EQ(limits.memory_bytes, 1073741824u);
  EXPECT_EQ(limits.memory_from, "cgroup limit");
}

TEST_F(MachineLimitsTest, FindsTheLimitAtTheMountInsideAContainer) {
  write("proc/self/cgroup", "0::/docker/0123456789");  // a path of the host, not visible here
  write("sys/fs/cgroup/memory.max", "536870912");
  EXPECT_EQ(read_machine_limits(root_).memory_bytes, 536870912u);
}

TEST_F(MachineLimitsTest, ReadsVersionOne) {
  write("proc/self/cgroup", "4:memory:/a\n3:cpu,cpuacct:/a");
  write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "30000");
  write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000");
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "268435456");
  const MachineLimits limits = read_machine_limits(root_);
  EXPECT_EQ(limits.num_cpus, 1);
  EXPECT_EQ(limits.memory_bytes, 268435456u);
}

TEST_F(MachineLimitsTest, UnlimitedVersionOneValuesAreNoLimit) {
  write("proc/self/cgroup", "4:memory:/\n3:cpu:/");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  const MachineLimits limits = read_machine_limits(root_);
  EXPECT_EQ(limits.cpus_from, "affinity");
  EXPECT_EQ(limits.memory_from, "physical memory");
}

}  // namespace
}  // namespace gimbal
