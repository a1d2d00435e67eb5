// Communication between ranks as threads: time of one call against payload, and the share of this machine's copy
// bandwidth, measured in the same run, that its necessary bytes reach.
//
// Necessary bytes, over all ranks together: what must be read and written at least.
//   copy            2 x payload
//   all_reduce      m vectors read, m written: 2 m x payload (m ranks)
//   all_gather      every rank reads all and writes all: 2 m x total
//   reduce_scatter  every vector read once, the sums written: (m + 1) x payload
//   exchange        rows to the ranks that need them and one row back per pair: 2 x (rows sent + pairs) x row, also
//   those
//                   that stay on their rank, for they are gathered and summed all the same
// The limit is that of copying 64 MiB with as many threads as processors. Small payloads are bound by the rendezvous of
// the ranks, all the more where ranks share processors.
#include <benchmark/benchmark.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "comm/in_process_world.h"
#include "moe/exchange/send_list.h"
#include "moe/exchange/token_exchange.h"

namespace gimbal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kHidden = 7168, kExperts = 384, kPerToken = 8;  // Kimi K2.6
constexpr int kWarmUpCalls = 3;

// Copies with every processor; bytes read and written per second.
double measure_copy_bandwidth() {
  const size_t num_threads = std::max(1u, std::thread::hardware_concurrency());
  constexpr size_t kBytes = size_t{64} << 20;
  std::vector<std::vector<char>> from(num_threads, std::vector<char>(kBytes / num_threads, 1)), to = from;
  double best = 0.0;
  for (int round = 0; round < 8; ++round) {
    const auto start = Clock::now();
    std::vector<std::thread> threads;
    for (size_t i = 0; i < num_threads; ++i) {
      threads.emplace_back([&, i] { std::memcpy(to[i].data(), from[i].data(), from[i].size()); });
    }
    for (std::thread& thread : threads) thread.join();
    benchmark::DoNotOptimize(to.data());
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, 2.0 * static_cast<double>(kBytes) / seconds);
  }
  return best;
}

double copy_bandwidth() {
  static const double bandwidth = measure_copy_bandwidth();
  return bandwidth;
}

void BM_Copy(benchmark::State& state) {
  while (state.KeepRunning()) state.SetIterationTime(2.0 * (size_t{64} << 20) / measure_copy_bandwidth());
  state.counters["GB/s"] = copy_bandwidth() / 1e9;
}
BENCHMARK(BM_Copy)->UseManualTime()->Iterations(1)->Unit(benchmark::kMicrosecond);

// Ranks that make the same call over and over. The call is made once per rank, in the rank's thread.
using RankCall = std::function<Status()>;
using MakeCall = std::function<RankCall(DeviceComm& comm)>;

// Mean seconds of a call, from the moment all ranks have warmed up to the end of the last.
double measure(int num_ranks, int num_calls, const MakeCall& make_call) {
  const auto world = InProcessWorld::create(num_ranks, std::chrono::seconds(60));
  std::vector<int> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) ranks.push_back(rank);
  std::vector<Clock::time_point> starts(ranks.size()), ends(ranks.size());
  std::atomic<bool> has_failed = false;
  std::vector<std::thread> threads;
  for (const int rank : ranks) {
    threads.emplace_back([&, rank] {
      const auto comm = world->device_comm(rank, ranks, "stage");
      const RankCall call = make_call(*comm);
      for (int i = 0; i < kWarmUpCalls; ++i) has_failed = has_failed || !call();
      has_failed = has_failed || !comm->barrier();
      starts[static_cast<size_t>(rank)] = Clock::now();
      for (int i = 0; i < num_calls; ++i) has_failed = has_failed || !call();
      ends[static_cast<size_t>(rank)] = Clock::now();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (has_failed) return -1.0;
  const auto start = *std::min_element(starts.begin(), starts.end());
  const auto end = *std::max_element(ends.begin(), ends.end());
  return std::chrono::duration<double>(end - start).count() / num_calls;
}

void run(benchmark::State& state, int num_ranks, double necessary_bytes, const MakeCall& make_call) {
  double total = 0.0;
  int64_t count = 0;
  while (state.KeepRunning()) {
    const double seconds = measure(num_ranks, 20, make_call);
    if (seconds < 0.0) return state.SkipWithError("a call between ranks failed");
    state.SetIterationTime(seconds);
    total += seconds;
    ++count;
  }
  const double bandwidth = necessary_bytes / (total / static_cast<double>(count));
  state.counters["GB/s"] = bandwidth / 1e9;
  state.counters["% of copy"] = 100.0 * bandwidth / copy_bandwidth();
}

void BM_AllReduce(benchmark::State& state) {
  const auto num_ranks = static_cast<int>(state.range(0));
  const auto count = static_cast<size_t>(state.range(1)) / sizeof(float);
  run(state, num_ranks, 2.0 * num_ranks * static_cast<double>(state.range(1)), [count](DeviceComm& comm) -> RankCall {
    return [&comm, data = std::vector<float>(count, 0.5f)]() mutable { return comm.all_reduce(data); };
  });
}
BENCHMARK(BM_AllReduce)
    ->ArgNames({"ranks", "bytes"})
    ->ArgsProduct({{2, 4, 8}, {4 << 10, 64 << 10, 1 << 20, 16 << 20}})
    ->UseManualTime()
    ->MinTime(0.05)
    ->Unit(benchmark::kMicrosecond);

void BM_AllGather(benchmark::State& state) {
  const auto num_ranks = static_cast<int>(state.range(0));
  const int64_t own = state.range(1) * kHidden;
  const double total = static_cast<double>(own) * sizeof(float) * num_ranks;
  run(state, num_ranks, 2.0 * num_ranks * total, [=](DeviceComm& comm) -> RankCall {
    const std::vector<int64_t> counts(static_cast<size_t>(num_ranks), own);
    return [&comm, counts, data = std::vector<float>(static_cast<size_t>(own)),
            all = std::vector<float>(static_cast<size_t>(own * num_ranks))]() mutable {
      return comm.all_gather(data, counts, all);
    };
  });
}
BENCHMARK(BM_AllGather)
    ->ArgNames({"ranks", "tokens"})
    ->ArgsProduct({{4, 8}, {1, 16, 64}})
    ->UseManualTime()
    ->MinTime(0.05)
    ->Unit(benchmark::kMicrosecond);

void BM_ReduceScatter(benchmark::State& state) {
  const auto num_ranks = static_cast<int>(state.range(0));
  const int64_t own = state.range(1) * kHidden;
  const double payload = static_cast<double>(own) * sizeof(float) * num_ranks;
  run(state, num_ranks, (num_ranks + 1.0) * payload, [=](DeviceComm& comm) -> RankCall {
    const std::vector<int64_t> counts(static_cast<size_t>(num_ranks), own);
    return [&comm, counts, data = std::vector<float>(static_cast<size_t>(own * num_ranks)),
            sum = std::vector<float>(static_cast<size_t>(own))]() mutable {
      return comm.reduce_scatter(data, counts, sum);
    };
  });
}
BENCHMARK(BM_ReduceScatter)
    ->ArgNames({"ranks", "tokens"})
    ->ArgsProduct({{4, 8}, {1, 16, 64}})
    ->UseManualTime()
    ->MinTime(0.05)
    ->Unit(benchmark::kMicrosecond);

enum class ExchangeUnderTest { kDirect, kMpi, kLowLatency };

std::unique_ptr<TokenExchange> make_exchange(ExchangeUnderTest kind, const ExchangeShape& shape, DeviceComm& stage) {
  switch (kind) {
    case ExchangeUnderTest::kDirect:
      return make_exchange_direct(shape, &stage);
    case ExchangeUnderTest::kMpi:
      return make_exchange_mpi(shape, &stage);
    case ExchangeUnderTest::kLowLatency:
      break;
  }
  return std::move(*make_exchange_low_latency(shape, &stage));
}

// Every token chooses eight different experts, all as likely; the same in every run.
TokenMajorBatch route_evenly(int64_t num_tokens, int rank) {
  TokenMajorBatch batch{.num_tokens = num_tokens, .experts_per_token = kPerToken, .expert_ids = {}, .weights = {}};
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  for (int64_t token = 0; token < num_tokens; ++token) {
    std::vector<int32_t> chosen;
    while (chosen.size() < static_cast<size_t>(kPerToken)) {
      const auto expert = static_cast<int32_t>(random() % static_cast<uint64_t>(kExperts));
      if (std::find(chosen.begin(), chosen.end(), expert) == chosen.end()) chosen.push_back(expert);
    }
    batch.expert_ids.insert(batch.expert_ids.end(), chosen.begin(), chosen.end());
  }
  batch.weights.assign(batch.expert_ids.size(), 0.125f);
  return batch;
}

// One dispatch and combine with experts that return the rows they got.
struct ExchangeRank {
  TokenMajorBatch batch;
  std::vector<float> rows, gathered, y;
  ReceivedTokens received;
  std::unique_ptr<TokenExchange> exchange;
  int64_t slots_per_rank = 0;

  Status run() {
    const OwnTokens own{.batch = &batch, .rows = rows.data()};
    GIMBAL_RETURN_IF_ERROR(exchange->dispatch(own, received));
    const ExpertMajorBatch sorted = sort_by_expert(received.pairs, slots_per_rank);
    gathered.resize(static_cast<size_t>(sorted.num_rows() * kHidden));
    for (int64_t row = 0; row < sorted.num_rows(); ++row) {
      std::copy_n(received.rows + sorted.row_token[static_cast<size_t>(row)] * kHidden, kHidden,
                  gathered.data() + row * kHidden);
    }
    return exchange->combine(own, {.rows = gathered.data(), .pair_row = sorted.pair_row}, y.data());
  }
};

void BM_Exchange(benchmark::State& state, ExchangeUnderTest kind) {
  const auto num_ranks = static_cast<int>(state.range(0));
  const int64_t num_tokens = state.range(1);
  const ExchangeShape shape{.hidden_size = kHidden,
                            .experts_per_token = kPerToken,
                            .slots_per_rank = kExperts / num_ranks,
                            .expert_parallel = num_ranks,
                            .expert_tp = 1,
                            .low_latency_tokens = num_tokens};
  double rows = 0.0;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const SendList list = make_send_list(route_evenly(num_tokens, rank), shape);
    rows += static_cast<double>(list.tokens.size() + list.pairs.size());
  }
  run(state, num_ranks, 2.0 * rows * kHidden * sizeof(float), [=](DeviceComm& comm) -> RankCall {
    auto rank = std::make_shared<ExchangeRank>();
    rank->batch = route_evenly(num_tokens, comm.rank());
    rank->rows.assign(static_cast<size_t>(num_tokens * kHidden), 0.5f);
    rank->y.resize(rank->rows.size());
    rank->slots_per_rank = shape.slots_per_rank;
    rank->exchange = make_exchange(kind, shape, comm);
    return [rank] { return rank->run(); };
  });
}

void exchange_arguments(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"ranks", "tokens"})
      ->ArgsProduct({{4, 8}, {1, 4, 16, 64}})
      ->UseManualTime()
      ->MinTime(0.05)
      ->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(BM_Exchange, direct, ExchangeUnderTest::kDirect)->Apply(exchange_arguments);
BENCHMARK_CAPTURE(BM_Exchange, mpi, ExchangeUnderTest::kMpi)->Apply(exchange_arguments);
BENCHMARK_CAPTURE(BM_Exchange, low_latency, ExchangeUnderTest::kLowLatency)->Apply(exchange_arguments);

}  // namespace
}  // namespace gimbal
