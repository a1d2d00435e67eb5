#include "base/thread_team.h"

#include <atomic>

#include <gtest/gtest.h>

namespace gimbal {
namespace {

TEST(ThreadTeam, RunsEveryTaskOnce) {
  for (int num_threads : {1, 2, 5}) {
    ThreadTeam team(num_threads);
    EXPECT_EQ(team.num_threads(), num_threads);
    for (int64_t num_tasks : {0, 1, 3, 1000}) {
      std::vector<std::atomic<int>> counts(static_cast<size_t>(num_tasks));
      team.run(num_tasks, [&](int64_t index, int worker) {
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, num_threads);
        counts[static_cast<size_t>(index)].fetch_add(1);
      });
      for (const auto& count : counts) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadTeam, LoopsFollowEachOtherWithoutLoss) {
  ThreadTeam team(3);
  std::atomic<int64_t> sum{0};
  for (int loop = 0; loop < 5000; ++loop) {
    team.run(4, [&](int64_t index, int) { sum.fetch_add(index); });
  }
  EXPECT_EQ(sum.load(), 5000 * 6);
}

}  // namespace
}  // namespace gimbal
