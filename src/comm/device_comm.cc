#include "comm/device_comm.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/check.h"

namespace gimbal {

void sum_in_rank_order(std::span<const float* const> parts, std::span<float> sum) {
  constexpr size_t kBlock = 1024;  // stays in the first-level cache while the ranks are added
  std::array<float, kBlock> block;
  for (size_t begin = 0; begin < sum.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, sum.size() - begin);
    std::copy_n(parts[0] + begin, count, block.begin());
    for (size_t rank = 1; rank < parts.size(); ++rank) {
      const float* part = parts[rank] + begin;
      for (size_t i = 0; i < count; ++i) block[i] += part[i];
    }
    std::copy_n(block.begin(), count, sum.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

int64_t begin_of_part(std::span<const int64_t> counts, int rank) {
  return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
}

Status DeviceComm::barrier() {
  if (size_ == 1) return {};
  const CommVerbScope scope(*state_, CommVerb::kBarrier, 0);
  return do_barrier();
}

Status DeviceComm::all_reduce(std::span<float> data) {
  if (size_ == 1 || data.empty()) return {};
  const CommVerbScope scope(*state_, CommVerb::kAllReduce, data.size_bytes());
  return do_all_reduce(data);
}

Status DeviceComm::all_gather(std::span<const float> own, std::span<const int64_t> counts, std::span<float> all) {
  GIMBAL_CHECK_EQ(counts.size(), static_cast<size_t>(size_));
  GIMBAL_CHECK_EQ(own.size(), static_cast<size_t>(counts[static_cast<size_t>(rank_)]));
  GIMBAL_CHECK_EQ(all.size(), static_cast<size_t>(begin_of_part(counts, size_)));
  if (all.empty()) return {};
  if (size_ == 1) return std::copy(own.begin(), own.end(), all.begin()), Status{};
  const CommVerbScope scope(*state_, CommVerb::kAllGather, own.size_bytes());
  return do_all_gather(own, counts, all);
}

Status DeviceComm::reduce_scatter(std::span<const float> data, std::span<const int64_t> counts, std::span<float> own) {
  GIMBAL_CHECK_EQ(counts.size(), static_cast<size_t>(size_));
  GIMBAL_CHECK_EQ(own.size(), static_cast<size_t>(counts[static_cast<size_t>(rank_)]));
  GIMBAL_CHECK_EQ(data.size(), static_cast<size_t>(begin_of_part(counts, size_)));
  if (data.empty()) return {};
  if (size_ == 1) return std::copy(data.begin(), data.end(), own.begin()), Status{};
  const CommVerbScope scope(*state_, CommVerb::kReduceScatter, data.size_bytes());
  return do_reduce_scatter(data, counts, own);
}

Status DeviceComm::all_to_all(const AllToAllArgs& args) {
  GIMBAL_CHECK_EQ(args.send_bytes.size(), static_cast<size_t>(size_));
  GIMBAL_CHECK_EQ(args.receive_bytes.size(), static_cast<size_t>(size_));
  const CommVerbScope scope(*state_, CommVerb::kAllToAll, args.send.size());
  return do_all_to_all(args);
}

Status DeviceComm::send(std::span<const float> data, int peer) {
  GIMBAL_CHECK(peer >= 0 && peer < size_ && peer != rank_);
  const CommVerbScope scope(*state_, CommVerb::kSend, data.size_bytes());
  return do_send(data, peer);
}

Status DeviceComm::receive(std::span<float> data, int peer) {
  GIMBAL_CHECK(peer >= 0 && peer < size_ && peer != rank_);
  const CommVerbScope scope(*state_, CommVerb::kReceive, 0);
  return do_receive(data, peer);
}

Result<std::span<const void* const>> DeviceComm::share(const void* own) {
  GIMBAL_CHECK(shares_memory());
  const CommVerbScope scope(*state_, CommVerb::kShare, 0);
  return do_share(own);
}

}  // namespace gimbal
