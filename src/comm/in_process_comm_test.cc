#include "comm/in_process_comm.h"

#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gimbal {
namespace {

using std::chrono::milliseconds;

// Runs `body(rank, comm)` on one thread per rank and returns what each said.
template <typename Body>
std::vector<Status> run_ranks(const std::shared_ptr<InProcessWorld>& world, const Body& body) {
  std::vector<int> everybody;
  for (int rank = 0; rank < world->size(); ++rank) everybody.push_back(rank);
  std::vector<Status> statuses(everybody.size());
  std::vector<std::thread> threads;
  for (const int rank : everybody) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<DeviceComm> comm = world->device_comm(rank, everybody, "all");
      statuses[static_cast<size_t>(rank)] = body(rank, *comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

void expect_all_ok(const std::vector<Status>& statuses) {
  for (const Status& status : statuses) EXPECT_TRUE(status.has_value()) << status.error().message;
}

// The vector of a rank: any values whose sums depend on the order.
std::vector<float> values_of(int rank, size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank) * 7919u + 5u);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random) * std::pow(10.0f, static_cast<float>(rank % 5));
  return values;
}

std::vector<float> sum_of_ranks(int size, size_t count) {
  std::vector<float> sum = values_of(0, count);
  for (int rank = 1; rank < size; ++rank) {
    const std::vector<float> more = values_of(rank, count);
    for (size_t i = 0; i < count; ++i) sum[i] += more[i];
  }
  return sum;
}

class InProcessComm : public testing::TestWithParam<int> {};

TEST_P(InProcessComm, AllReduceSumsInRankOrderBitwise) {
  const int size = GetParam();
  const auto world = InProcessWorld::create(size, milliseconds(30000));
  expect_all_ok(run_ranks(world, [&](int rank, DeviceComm& comm) -> Status {
    for (const size_t count :
         {size_t{1}, size_t{7}, size_t{1000}, size_t{16 * 1024}, size_t{16 * 1024 + 3}, size_t{70001}}) {
      std::vector<float> data = values_of(rank, count);
      GIMBAL_RETURN_IF_ERROR(comm.all_reduce(data));
      const std::vector<float> expected = sum_of_ranks(size, count);
      EXPECT_EQ(std::memcmp(data.data(), expected.data(), count * sizeof(float)), 0) << rank << " " << count;
    }
    return {};
  }));
}

TEST_P(InProcessComm, GathersAndScattersUnevenParts) {
  const int size = GetParam();
  std::vector<int64_t> counts;
  for (int rank = 0; rank < size; ++rank) counts.push_back(rank % 3 == 1 ? 0 : 5 + 3 * rank);
  const auto total = static_cast<size_t>(begin_of_part(counts, size));
  const auto world = InProcessWorld::create(size, milliseconds(30000));
  expect_all_ok(run_ranks(world, [&](int rank, DeviceComm& comm) -> Status {
    const auto own_count = static_cast<size_t>(counts[static_cast<size_t>(rank)]);
    std::vector<float> all(total, -1.0f), own(own_count);
    GIMBAL_RETURN_IF_ERROR(comm.all_gather(values_of(rank, own_count), counts, all));
    std::vector<float> expected;
    for (int peer = 0; peer < size; ++peer) {
      const std::vector<float> part = values_of(peer, static_cast<size_t>(counts[static_cast<size_t>(peer)]));
      expected.insert(expected.end(), part.begin(), part.end());
    }
    EXPECT_EQ(all, expected);
    GIMBAL_RETURN_IF_ERROR(comm.reduce_scatter(values_of(rank, total), counts, own));
    const std::vector<float> sum = sum_of_ranks(size, total);
    const auto begin = sum.begin() + begin_of_part(counts, rank);
    EXPECT_EQ(own, std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(own_count)));
    return {};
  }));
}

TEST_P(InProcessComm, AllToAllBringsEveryPart) {
  const int size = GetParam();
  const auto world = InProcessWorld::create(size, milliseconds(30000));
  const auto bytes_of = [](int from, int to) { return static_cast<uint64_t>((from * 3 + to * 5) % 7); };
  expect_all_ok(run_ranks(world, [&](int rank, DeviceComm& comm) -> Status {
    std::vector<std::byte> send, expected;
    std::vector<uint64_t> send_bytes, receive_bytes;
    for (int peer = 0; peer < size; ++peer) {
      send_bytes.push_back(bytes_of(rank, peer));
      receive_bytes.push_back(bytes_of(peer, rank));
      send.insert(send.end(), send_bytes.back(), static_cast<std::byte>(rank * 16 + peer));
      expected.insert(expected.end(), receive_bytes.back(), static_cast<std::byte>(peer * 16 + rank));
    }
    std::vector<std::byte> receive(expected.size());
    GIMBAL_RETURN_IF_ERROR(
        comm.all_to_all({.send = send, .send_bytes = send_bytes, .receive = receive, .receive_bytes = receive_bytes}));
    EXPECT_EQ(receive, expected);
    return {};
  }));
}

TEST_P(InProcessComm, MessagesKeepTheirOrder) {
  const int size = GetParam();
  if (size == 1) return;
  const auto world = InProcessWorld::create(size, milliseconds(30000));
  expect_all_ok(run_ranks(world, [&](int rank, DeviceComm& comm) -> Status {
    for (int i = 0; i < 20; ++i) {
      std::vector<float> data(10, static_cast<float>(rank * 100 + i));
      GIMBAL_RETURN_IF_ERROR(comm.send(data, (rank + 1) % size));
      std::fill(data.begin(), data.end(), -1.0f);  // the message was copied
    }
    const int from = (rank + size - 1) % size;
    for (int i = 0; i < 20; ++i) {
      std::vector<float> data(10);
      GIMBAL_RETURN_IF_ERROR(comm.receive(data, from));
      EXPECT_THAT(data, testing::Each(static_cast<float>(from * 100 + i)));
    }
    return {};
  }));
}

TEST_P(InProcessComm, WindowsShowAllPutsOfASeenSignal) {
  const int size = GetParam();
  const auto world = InProcessWorld::create(size, milliseconds(30000));
  expect_all_ok(run_ranks(world, [&](int rank, DeviceComm& comm) -> Status {
    GIMBAL_ASSIGN_OR_RETURN(const std::unique_ptr<PeerWindow> window,
                            comm.make_window(static_cast<uint64_t>(size) * 64, 2 * size));
    for (uint64_t round = 1; round <= 100; ++round) {
      for (int peer = 0; peer < size; ++peer) {
        const std::vector<std::byte> data(64, static_cast<std::byte>(round + static_cast<uint64_t>(rank)));
        GIMBAL_RETURN_IF_ERROR(window->put(peer, static_cast<uint64_t>(rank) * 64, data));
        GIMBAL_RETURN_IF_ERROR(window->signal(peer, rank, round));
      }
      for (int peer = 0; peer < size; ++peer) {
        GIMBAL_RETURN_IF_ERROR(window->wait_signal(peer, round));
        const std::byte* part = window->local() + peer * 64;
        for (int i = 0; i < 64; ++i) EXPECT_EQ(part[i], static_cast<std::byte>(round + static_cast<uint64_t>(peer)));
        GIMBAL_RETURN_IF_ERROR(window->signal(peer, size + rank, round));  // has been read
      }
      for (int peer = 0; peer < size; ++peer) GIMBAL_RETURN_IF_ERROR(window->wait_signal(size + peer, round));
    }
    return {};
  }));
}

INSTANTIATE_TEST_SUITE_P(Sizes, InProcessComm, testing::Values(1, 2, 3, 8));

TEST(InProcessFailure, AStuckRankIsNamedOnEveryOtherRank) {
  const auto world = InProcessWorld::create(4, milliseconds(200));
  std::atomic<int> num_ended = 0;
  const auto statuses = run_ranks(world, [&](int rank, DeviceComm& comm) -> Status {
    comm.state().step = 17;
    comm.state().layer = rank == 2 ? 4 : 5;
    if (rank == 2) {  // stuck until the others have ended
      while (num_ended < 3) std::this_thread::yield();
      return {};
    }
    std::vector<float> data(8, 1.0f);
    Status status = comm.all_reduce(data);
    ++num_ended;
    return status;
  });
  for (const int rank : {0, 1, 3}) {
    const Status& status = statuses[static_cast<size_t>(rank)];
    ASSERT_FALSE(status.has_value()) << rank;
    EXPECT_THAT(status.error().message, testing::HasSubstr("all_reduce of layer 5, step 17"));
    EXPECT_THAT(status.error().message, testing::HasSubstr("rank 2, last seen in computation of layer 4, step 17"));
  }
}

TEST(InProcessFailure, AMessageThatDoesNotComeNamesTheSender) {
  const auto world = InProcessWorld::create(2, milliseconds(100));
  const auto statuses = run_ranks(world, [&](int rank, DeviceComm& comm) -> Status {
    std::vector<float> data(4);
    return rank == 0 ? comm.receive(data, 1) : Status{};
  });
  EXPECT_THAT(statuses[0].error().message, testing::HasSubstr("for a message of rank 1"));
}

TEST(InProcessFailure, OneRanksErrorEndsAllWaitsAtOnce) {
  const auto world = InProcessWorld::create(3, milliseconds(60000));
  const auto statuses = run_ranks(world, [&](int rank, DeviceComm& comm) -> Status {
    if (rank == 1) {
      world->raise(Error::failed("rank 1 has no memory"));
      return fail(*world->failure());
    }
    if (rank == 0) return comm.barrier();
    const Result<HostMessage> message = world->host_comm(rank)->receive(0, Patience::kForever);
    return message ? Status{} : fail(message.error());
  });
  for (const Status& status : statuses) EXPECT_EQ(status.error().message, "rank 1 has no memory");
}

TEST(InProcessFailure, RanksThatDisagreeAreTold) {
  const auto world = InProcessWorld::create(2, milliseconds(60000));
  const auto statuses = run_ranks(world, [&](int rank, DeviceComm& comm) -> Status {
    std::vector<float> data(4);
    Status status = rank == 0 ? comm.all_reduce(data) : comm.barrier();
    if (!status) world->raise(status.error());
    return status;
  });
  for (const Status& status : statuses)
    EXPECT_THAT(status.error().message, testing::HasSubstr("do not execute the same plan"));
}

TEST(HostComm, AgreementGivesTheFirstErrorToAll) {
  const auto world = InProcessWorld::create(4, milliseconds(30000));
  const auto statuses = run_ranks(world, [&](int rank, DeviceComm&) -> Status {
    const auto host = world->host_comm(rank);
    GIMBAL_RETURN_IF_ERROR(agree(*host, {}));
    Status own;
    if (rank >= 2) own = fail(Error::invalid("rank " + std::to_string(rank) + " cannot"));
    return agree(*host, own);
  });
  for (const Status& status : statuses) {
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().message, "rank 2 cannot");
    EXPECT_EQ(status.error().kind, ErrorKind::kInvalidRequest);
  }
}

}  // namespace
}  // namespace gimbal
