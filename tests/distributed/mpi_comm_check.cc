// Checks the communicators between processes: mpirun -n N mpi_comm_check [MODE] [VERB] [SEED]
//
//   check   every verb against plainly computed values; rank 0 prints "ok COUNT checks", exit code 0 (the default)
//   apart   as check, with windows as they are between machines
//   stuck   rank 1 never comes to VERB (barrier, all_reduce, all_gather, receive, signal, host, group, window, end,
//           finalize): the others must say so and the job must end with exit code 1. VERB inside: the others are in
//           a call that does not return; the watchdog must say so
//   plan    rank 1 comes to another verb than the others: as stuck, and the message must name it
//   error   rank 1 raises an error: the job must end with exit code 1
#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "comm/mpi_session.h"

namespace gimbal {
namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15u + b + 0x632BE59BD9B4E019u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// The values of a rank in a case: every rank can compute those of all others. Sizes of very different magnitude, so
// that a sum in another order has other bits.
std::vector<float> values_of(uint64_t key, int rank, size_t count) {
  std::vector<float> values(count);
  const uint64_t start = mix(key, static_cast<uint64_t>(rank));
  for (size_t i = 0; i < count; ++i) {
    const uint64_t random = mix(start, i);
    const float scale = static_cast<float>(1 << (random % 20));
    values[i] = (static_cast<float>(random >> 40) / 16777216.0f - 0.5f) * scale;
  }
  return values;
}

// Plain: one value after the other, rank 0 first.
std::vector<float> sum_of_ranks(uint64_t key, int num_ranks, size_t count) {
  std::vector<float> sum = values_of(key, 0, count);
  for (int rank = 1; rank < num_ranks; ++rank) {
    const std::vector<float> values = values_of(key, rank, count);
    for (size_t i = 0; i < count; ++i) sum[i] += values[i];
  }
  return sum;
}

// Counts what was right and ends the job at the first difference.
class Findings {
 public:
  explicit Findings(MpiSession* session) : session_(session) {}
  int64_t num_checks() const { return num_checks_; }

  void require(const Status& status, std::string_view what) {
    if (!status) session_->abort(Error::failed(fmt::format("{}: {}", what, status.error().message)));
  }
  template <typename T>
  T require(Result<T> result, std::string_view what) {
    if (!result) session_->abort(Error::failed(fmt::format("{}: {}", what, result.error().message)));
    return std::move(*result);
  }
  void expect(bool is_right, std::string_view what) {
    if (!is_right) session_->abort(Error::failed(fmt::format("{} differs", what)));
    ++num_checks_;
  }
  // Bit for bit.
  void expect_same(std::span<const float> got, std::span<const float> wanted, std::string_view what) {
    expect(got.size() == wanted.size(), fmt::format("{}: the size", what));
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(wanted[i])) continue;
      session_->abort(
          Error::failed(fmt::format("{}: value {} of {} is {:a}, not {:a}", what, i, got.size(), got[i], wanted[i])));
    }
    ++num_checks_;
  }

 private:
  MpiSession* session_;
  int64_t num_checks_ = 0;
};

// Parts of very different sizes, some empty; the same on every rank.
std::vector<int64_t> part_sizes(uint64_t key, int num_parts) {
  std::vector<int64_t> counts;
  for (int part = 0; part < num_parts; ++part) {
    const uint64_t random = mix(key, static_cast<uint64_t>(part) + 1000);
    const std::vector<int64_t> choices = {0, 1, static_cast<int64_t>(random >> 32) % 1000,
                                          static_cast<int64_t>(random >> 32) % 40000};
    counts.push_back(choices[random % choices.size()]);
  }
  return counts;
}

// All ranks make the same calls; `key` names a case.
class GroupCheck {
 public:
  GroupCheck(Findings* findings, DeviceComm* comm) : findings_(*findings), comm_(*comm) {}

  void run(uint64_t key) {
    findings_.require(comm_.barrier(), "barrier");
    for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{8192}, size_t{8193}, size_t{300000},
                               static_cast<size_t>(mix(key, 1) % 50000)}) {
      all_reduce(mix(key, count), count);
    }
    for (uint64_t round = 0; round < 6; ++round) {
      gather_and_scatter(mix(key, 100 + round), part_sizes(mix(key, 200 + round), comm_.size()));
      all_to_all(mix(key, 300 + round));
    }
    gather_and_scatter(key, std::vector<int64_t>(static_cast<size_t>(comm_.size()), 0));
    gather_and_scatter(key, std::vector<int64_t>(static_cast<size_t>(comm_.size()), 300000 / comm_.size()));
    if (comm_.size() > 1) send_around(key);
  }

  // Put, signal and wait among all pairs, the own rank included; a slot is written again once its reader has said so.
  void window(uint64_t key, size_t slot_values, uint64_t num_rounds);

 private:
  void all_reduce(uint64_t key, size_t count);
  void gather_and_scatter(uint64_t key, const std::vector<int64_t>& counts);
  void all_to_all(uint64_t key);
  void send_around(uint64_t key);

  Findings& findings_;
  DeviceComm& comm_;
};

void GroupCheck::all_reduce(uint64_t key, size_t count) {
  std::vector<float> data = values_of(key, comm_.rank(), count);
  findings_.require(comm_.all_reduce(data), "all_reduce");
  findings_.expect_same(data, sum_of_ranks(key, comm_.size(), count), fmt::format("all_reduce of {}", count));
}

void GroupCheck::gather_and_scatter(uint64_t key, const std::vector<int64_t>& counts) {
  const auto total = static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
  const auto own_count = static_cast<size_t>(counts[static_cast<size_t>(comm_.rank())]);
  std::vector<float> wanted;
  for (int rank = 0; rank < comm_.size(); ++rank) {
    const std::vector<float> part = values_of(key, rank, static_cast<size_t>(counts[static_cast<size_t>(rank)]));
    wanted.insert(wanted.end(), part.begin(), part.end());
  }
  std::vector<float> all(total);
  findings_.require(comm_.all_gather(values_of(key, comm_.rank(), own_count), counts, all), "all_gather");
  findings_.expect_same(all, wanted, fmt::format("all_gather of {}", total));

  std::vector<float> own(own_count);
  findings_.require(comm_.reduce_scatter(values_of(key + 1, comm_.rank(), total), counts, own), "reduce_scatter");
  const std::vector<float> sum = sum_of_ranks(key + 1, comm_.size(), total);
  const auto begin = static_cast<size_t>(begin_of_part(counts, comm_.rank()));
  findings_.expect_same(own, std::span(sum).subspan(begin, own_count), fmt::format("reduce_scatter of {}", total));
}

void GroupCheck::all_to_all(uint64_t key) {
  const auto part = [&](int from, int to) {
    const int64_t count = part_sizes(mix(key, static_cast<uint64_t>(from)), comm_.size())[static_cast<size_t>(to)];
    return values_of(mix(key, static_cast<uint64_t>(to)), from, static_cast<size_t>(count));
  };
  std::vector<float> send;
  std::vector<float> wanted;
  std::vector<uint64_t> send_bytes;
  std::vector<uint64_t> receive_bytes;
  for (int peer = 0; peer < comm_.size(); ++peer) {
    const std::vector<float> to_peer = part(comm_.rank(), peer);
    const std::vector<float> from_peer = part(peer, comm_.rank());
    send.insert(send.end(), to_peer.begin(), to_peer.end());
    wanted.insert(wanted.end(), from_peer.begin(), from_peer.end());
    send_bytes.push_back(to_peer.size() * sizeof(float));
    receive_bytes.push_back(from_peer.size() * sizeof(float));
  }
  std::vector<float> received(wanted.size());
  AllToAllArgs args;
  args.send = std::as_bytes(std::span(send));
  args.send_bytes = send_bytes;
  args.receive = std::as_writable_bytes(std::span(received));
  args.receive_bytes = receive_bytes;
  findings_.require(comm_.all_to_all(args), "all_to_all");
  findings_.expect_same(received, wanted, fmt::format("all_to_all of {}", wanted.size()));
}

// Several messages are under way per pair, of sizes from nothing to what MPI sends only when asked for.
void GroupCheck::send_around(uint64_t key) {
  const int next = (comm_.rank() + 1) % comm_.size();
  const int previous = (comm_.rank() + comm_.size() - 1) % comm_.size();
  const std::vector<size_t> counts = {1, 0, 300000, 5, 1000, static_cast<size_t>(mix(key, 2) % 30000)};
  for (uint64_t round = 0; round < 20; ++round) {
    for (const size_t count : counts) {
      std::vector<float> data = values_of(mix(key, round), comm_.rank(), count);
      findings_.require(comm_.send(data, next), "send");
      std::fill(data.begin(), data.end(), -1.0f);
    }
    for (const size_t count : counts) {
      std::vector<float> data(count);
      findings_.require(comm_.receive(data, previous), "receive");
      findings_.expect_same(data, values_of(mix(key, round), previous, count), fmt::format("send of {}", count));
    }
  }
}

void GroupCheck::window(uint64_t key, size_t slot_values, uint64_t num_rounds) {
  const int size = comm_.size();
  const size_t slot_bytes = slot_values * sizeof(float);
  auto window =
      findings_.require(comm_.make_window(slot_bytes * static_cast<size_t>(size), int64_t{2} * size), "make_window");
  findings_.expect(reinterpret_cast<uintptr_t>(window->local()) % 64 == 0, "the alignment of a window");
  const std::span<const std::byte> memory(window->local(), slot_bytes * static_cast<size_t>(size));
  findings_.expect(std::all_of(memory.begin(), memory.end(), [](std::byte b) { return b == std::byte{}; }),
                   "the zeroes of a window");
  findings_.require(comm_.barrier(), "barrier");
  for (uint64_t round = 1; round <= num_rounds; ++round) {
    for (int step = 0; step < size; ++step) {
      const int peer = (comm_.rank() + step) % size;
      findings_.require(window->wait_signal(size + peer, round - 1), "wait_signal");
      std::vector<float> data = values_of(mix(key, round), comm_.rank() * size + peer, slot_values);
      findings_.require(
          window->put(peer, slot_bytes * static_cast<size_t>(comm_.rank()), std::as_bytes(std::span(data))), "put");
      std::fill(data.begin(), data.end(), -1.0f);
      findings_.require(window->signal(peer, comm_.rank(), round), "signal");
    }
    for (int peer = 0; peer < size; ++peer) {
      findings_.require(window->wait_signal(peer, round), "wait_signal");
      std::vector<float> got(slot_values);
      if (slot_bytes > 0) std::memcpy(got.data(), window->local() + slot_bytes * static_cast<size_t>(peer), slot_bytes);
      findings_.expect_same(got, values_of(mix(key, round), peer * size + comm_.rank(), slot_values),
                            fmt::format("round {} of put", round));
      findings_.require(window->signal(peer, size + comm_.rank(), round), "signal");
    }
  }
}

void check_host_messages(Findings& findings, HostComm& host, uint64_t key) {
  const int next = (host.rank() + 1) % host.size();
  const int previous = (host.rank() + host.size() - 1) % host.size();
  const auto text_of = [&](int rank, size_t bytes) {
    std::string text(bytes, '\0');
    for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(mix(key, i * 64 + static_cast<uint64_t>(rank)));
    return text;
  };
  const std::vector<size_t> sizes = {0, 1, 5 << 20, 100, 0, 70000, static_cast<size_t>(mix(key, 3) % 10000)};
  for (const Patience patience : {Patience::kTimeout, Patience::kForever}) {
    for (const size_t bytes : sizes) {
      findings.require(host.send(next, std::make_shared<const std::string>(text_of(host.rank(), bytes))), "host send");
    }
    for (const size_t bytes : sizes) {
      const HostMessage message = findings.require(host.receive(previous, patience), "host receive");
      findings.expect(*message == text_of(previous, bytes), fmt::format("a host message of {} bytes", bytes));
    }
  }
  const Status own = host.rank() == host.size() - 1 ? fail(Error::invalid("the last one fails")) : Status{};
  const Status agreed = agree(host, own);
  findings.expect(!agreed && agreed.error().kind == ErrorKind::kInvalidRequest, "an agreement on an error");
  findings.expect(agree(host, {}).has_value(), "an agreement");
}

// Planning goes on in a thread of its own while tensors travel.
void check_two_threads(Findings& findings, MpiSession& session, CommState* state, uint64_t key) {
  std::vector<int> everybody(static_cast<size_t>(session.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  const auto comm = findings.require(session.device_comm(everybody, state), "device_comm");
  std::thread planning([&] {
    Findings own_findings(&session);
    const auto host = session.host_comm();
    for (uint64_t round = 0; round < 10; ++round) check_host_messages(own_findings, *host, mix(key, round));
  });
  GroupCheck group(&findings, comm.get());
  for (uint64_t round = 0; round < 3; ++round) group.run(mix(key, round));
  planning.join();
}

// The sum over all ranks, on rank 0.
int64_t sum_at_first(Findings& findings, HostComm& host, int64_t own) {
  int64_t sum = own;
  if (host.rank() != 0) {
    findings.require(host.send(0, std::make_shared<const std::string>(std::to_string(own))), "host send");
  }
  for (int peer = 1; host.rank() == 0 && peer < host.size(); ++peer) {
    sum += std::stoll(*findings.require(host.receive(peer, Patience::kForever), "host receive"));
  }
  return sum;
}

int check_all(MpiSession& session, CommState* state, uint64_t seed) {
  Findings findings(&session);
  const auto host = session.host_comm();
  for (int peer = 1; host->rank() == 0 && peer < host->size(); ++peer) {
    findings.require(host->send(peer, std::make_shared<const std::string>(std::to_string(seed))), "host send");
  }
  if (host->rank() != 0) seed = std::stoull(*findings.require(host->receive(0, Patience::kForever), "host receive"));
  if (host->rank() == 0) fmt::print("{} ranks, seed {}\n", session.size(), seed);
  check_host_messages(findings, *host, seed);

  std::vector<int> everybody(static_cast<size_t>(session.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  std::vector<int> same_parity;
  for (const int rank : everybody) {
    if (rank % 2 == session.rank() % 2) same_parity.push_back(rank);
  }
  const std::vector<int> backwards(everybody.rbegin(), everybody.rend());
  for (const std::vector<int>& members : {everybody, same_parity, everybody, backwards, {session.rank()}}) {
    const auto comm = findings.require(session.device_comm(members, state), "device_comm");
    findings.expect(members[static_cast<size_t>(comm->rank())] == session.rank(), "the rank in a group");
    GroupCheck group(&findings, comm.get());
    group.run(mix(seed, members.size() * 100 + static_cast<uint64_t>(members[0])));
    group.window(mix(seed, 4), 1000, 100);
    group.window(mix(seed, 5), 1, 20);
    group.window(mix(seed, 6), 100000, 5);
    group.window(mix(seed, 7), 0, 3);
  }
  check_two_threads(findings, session, state, mix(seed, 8));
  const int64_t num_checks = sum_at_first(findings, *host, findings.num_checks());
  if (host->rank() == 0) fmt::print("ok {} checks\n", num_checks);
  return 0;
}

// What the ranks other than 1 do while rank 1 sleeps. Must fail.
Status come_to(std::string_view verb, MpiSession& session, DeviceComm& comm, PeerWindow& window) {
  std::vector<int> everybody(static_cast<size_t>(session.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  std::vector<float> data(100000);
  const std::vector<int64_t> counts(static_cast<size_t>(comm.size()), 10);
  std::vector<float> all(static_cast<size_t>(comm.size()) * 10);
  if (verb == "barrier") return comm.barrier();
  if (verb == "all_reduce") return comm.all_reduce(data);
  if (verb == "all_gather") return comm.all_gather(std::span(data).first(10), counts, all);
  if (verb == "receive") return comm.receive(data, 1);
  if (verb == "signal") return window.wait_signal(1, 1);
  if (verb == "host") return session.host_comm()->receive(1, Patience::kTimeout).map([](const HostMessage&) {});
  if (verb == "group") {
    return session.device_comm(everybody, &comm.state()).map([](const std::unique_ptr<DeviceComm>&) {});
  }
  if (verb == "window") return comm.make_window(1000, 2).map([](const std::unique_ptr<PeerWindow>&) {});
  return fail(Error::invalid(fmt::format("there is no verb {}", verb)));
}

[[noreturn]] void sleep_for_ever() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

void check_failure(std::string_view mode, std::string_view verb, MpiSession& session, CommState* state) {
  Findings findings(&session);
  const auto host = session.host_comm();
  const bool is_asleep = session.rank() == 1 && mode == "stuck";
  if (is_asleep && (verb == "finalize" || verb == "inside")) sleep_for_ever();
  if (verb == "finalize") return;
  if (verb == "inside") {
    // As a call of MPI that does not return: the watchdog must see it.
    if (const auto turn = session.take_turn(state)) sleep_for_ever();
  }
  std::vector<int> everybody(static_cast<size_t>(session.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  const auto comm = findings.require(session.device_comm(everybody, state), "device_comm");
  const auto window = findings.require(comm->make_window(1000, 2), "make_window");
  findings.require(comm->barrier(), "barrier");
  state->step = 17;
  state->layer = 3;
  if (session.rank() == 1 && mode == "error") host->raise(Error::failed("rank 1 has a reason to give up."));
  if (is_asleep) sleep_for_ever();
  std::string_view own_verb = verb;
  if (session.rank() == 1 && mode == "plan") own_verb = verb == "barrier" ? "all_reduce" : "barrier";
  if (own_verb == "end") return;
  const Status status = come_to(own_verb, session, *comm, *window);
  session.abort(status ? Error::failed(fmt::format("{} went well without rank 1", verb)) : status.error());
}

int run(const std::vector<std::string>& arguments) {
  const std::string mode = !arguments.empty() ? arguments[0] : "check";
  const std::string verb = arguments.size() > 1 ? arguments[1] : "all_reduce";
  const uint64_t seed =
      arguments.size() > 2
          ? std::stoull(arguments[2])
          : static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch() / std::chrono::microseconds(1));
  const bool is_check = mode == "check" || mode == "apart";
  const auto timeout = is_check ? std::chrono::seconds(60) : std::chrono::seconds(2);
  auto session = MpiSession::start(timeout);
  if (!session) {
    fmt::print(stderr, "{}\n", session.error().message);
    return 1;
  }
  CommState state;
  state.world_rank = (*session)->rank();
  state.world_size = (*session)->size();
  if (mode == "apart") (*session)->treat_machines_as_apart();
  if (is_check) return check_all(**session, &state, seed);
  check_failure(mode, verb, **session, &state);
  return 0;
}

}  // namespace
}  // namespace gimbal

int main(int argc, char** argv) { return gimbal::run(std::vector<std::string>(argv + 1, argv + argc)); }
