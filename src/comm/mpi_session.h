// MpiSession: this process as one rank of an MPI job, and the rules under which its threads call MPI.
//
// MPI is called by one thread at a time: each takes a turn, makes calls that do not block for long, and ends the turn.
// Waiting is done between turns, under a deadline. Where MPI blocks inside a call all the same, a watchdog ends the
// process, and with it the job. The first failure is kept: after it no thread calls MPI again, except to end the job.
// The headers of this implementation do not include mpi.h.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "comm/comm_state.h"
#include "comm/device_comm.h"
#include "comm/host_comm.h"

namespace gimbal {

struct MpiHostChannel;
class MpiSession;

// The right to call MPI, until it goes out of scope.
class [[nodiscard]] MpiTurn {
 public:
  explicit MpiTurn(MpiSession* session) : session_(session) {}
  MpiTurn(MpiTurn&& other) noexcept : session_(std::exchange(other.session_, nullptr)) {}
  MpiTurn& operator=(MpiTurn&&) = delete;
  ~MpiTurn();

 private:
  MpiSession* session_;  // nullptr: moved away
};

// What a thread waits for.
struct MpiWait {
  const CommState* state = nullptr;  // nullptr: host messages
  Patience patience = Patience::kTimeout;
  std::chrono::microseconds longest_pause = std::chrono::microseconds(100);  // between two looks
  // Called during a turn; makes calls that do not block. True ends the wait; an error must be the session's failure.
  std::function<Result<bool>()> is_done = {};
  // What to say after the deadline. Called during a turn.
  std::function<Error()> on_timeout = {};
};

// One per process; must outlive every communicator and window made from it. Thread-safe.
class MpiSession {
 public:
  // Starts MPI; all processes of the job must do so. Errors: MPI is started already, cannot start, or does not let
  // several threads call it one after the other.
  static Result<std::unique_ptr<MpiSession>> start(std::chrono::milliseconds timeout);
  // Ends MPI once all ranks have come to it, no later than the time-out; after a failure it leaves that to the end of
  // the process, which ends the job.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_.load(std::memory_order_relaxed); }
  int size() const { return size_.load(std::memory_order_relaxed); }
  std::chrono::milliseconds timeout() const { return timeout_; }

  // All objects share one stream of messages per pair of ranks.
  std::unique_ptr<HostComm> host_comm();
  // The communicator of this rank in the group of `world_ranks`; only members call it. Members of several groups make
  // them in the same order. The same list again makes another group. `state` must outlive it.
  Result<std::unique_ptr<DeviceComm>> device_comm(const std::vector<int>& world_ranks, CommState* state);

  // From here on windows are made as if every rank had a machine of its own. All ranks must do so, or none.
  void treat_machines_as_apart() { are_machines_apart_ = true; }
  bool are_machines_apart() const { return are_machines_apart_; }

  // Prints "rank R of N: MESSAGE" and ends all processes of the job with exit code 1.
  [[noreturn]] void abort(const Error& error);

  // The rest is for the communicators.

  // Error: the failure. `state` is what the watchdog reports (nullptr: host messages).
  Result<MpiTurn> take_turn(const CommState* state);
  // Looks at `wait` in turns until it is done. Errors: the failure; a passed deadline becomes it.
  Status wait(const MpiWait& wait);
  // The status of an MPI call that returned `code`; an error becomes the failure.
  Status check(int code, std::string_view call);
  static std::string describe_code(int code);
  // Makes `error` the failure unless there is one, and returns the failure.
  tl::unexpected<Error> fail_with(Error error);
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  // "Rank 3 of 8 waited 30.0 s (--comm-timeout-s) in POSITION": how every message about a deadline begins.
  std::string describe_wait(std::string_view position) const;
  // A tag that all members of a group find without asking each other.
  int next_group_tag(const std::vector<int>& world_ranks);

 private:
  friend class MpiTurn;
  explicit MpiSession(std::chrono::milliseconds timeout);
  Status start_mpi();
  Status meet_at_end();
  // Between these two MPI is called. `what` is reported where there is no state.
  void begin_operation(const CommState* state, const char* what);
  void end_operation();
  void watch();
  // Ends the process; for when MPI itself can no longer be called.
  [[noreturn]] void end_process(std::string_view why) const;
  std::string name() const;

  const std::chrono::milliseconds timeout_;
  std::atomic<int> rank_ = -1;  // -1: MPI has not told yet
  std::atomic<int> size_ = 0;
  bool is_started_ = false;
  bool are_machines_apart_ = false;
  bool may_spin_ = false;  // every rank of this machine can have a processor of its own
  std::shared_ptr<MpiHostChannel> host_channel_;

  std::timed_mutex turn_;
  std::atomic<uint64_t> operations_ = 0;  // begun and ended; odd: one is under way
  std::atomic<const CommState*> operation_state_ = nullptr;
  std::atomic<const char*> operation_what_ = "";
  std::atomic<bool> is_aborting_ = false;

  std::atomic<bool> has_failed_ = false;
  std::mutex mutex_;
  std::optional<Error> failure_;                // guarded by mutex_
  std::map<std::vector<int>, int> num_groups_;  // made of a list of ranks; guarded by mutex_
  bool must_stop_watching_ = false;             // guarded by mutex_
  std::condition_variable stop_watching_;
  std::thread watchdog_;
};

// Messages that are on their way while their sender goes on. Used by one thread at a time.
class MpiOutbox {
 public:
  using Buffer = std::shared_ptr<std::vector<std::byte>>;

  // `state` as in MpiSession::take_turn. `communicator` is MPI's number for it (MPI_Comm_c2f).
  MpiOutbox(MpiSession* session, CommState* state, int communicator);
  // Waits until all messages have left, no longer than the time-out.
  ~MpiOutbox();
  MpiOutbox(const MpiOutbox&) = delete;
  MpiOutbox& operator=(const MpiOutbox&) = delete;

  // An empty buffer that is not on its way; one that was used before where there is one.
  Buffer take_buffer();
  // Begins a message that `owner` keeps until it has left; it must not change before.
  Status send(int peer, int tag, std::span<const std::byte> message, std::shared_ptr<const void> owner);

 private:
  struct Letter;
  // During a turn: lets go of the messages that have left.
  Status let_go_of_sent();

  MpiSession* session_;  // not owned
  CommState* state_;     // not owned; nullptr: host messages
  int communicator_;
  std::vector<Letter> letters_;
  std::vector<Buffer> buffers_;
};

}  // namespace gimbal
