#include "comm/mpi_session.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <sched.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "base/check.h"
#include "comm/mpi_device_comm.h"
#include "comm/mpi_host_comm.h"

namespace gimbal {
namespace {

using std::chrono::steady_clock;

// How much longer than a deadline one call of MPI may take before the process is ended.
constexpr std::chrono::seconds kWatchdogMargin(5);
constexpr std::chrono::milliseconds kWatchdogPeriod(250);
// Ranks that waited for the same peer run into their deadlines together; each gets to say so before the job ends.
constexpr std::chrono::milliseconds kAbortDelay(500);
constexpr std::chrono::seconds kAbortLimit(10);

// That an outbox keeps for its next messages.
constexpr size_t kMostBuffers = 8;

constexpr int kSpinRounds = 200;
constexpr std::chrono::microseconds kYieldTime(500);
constexpr std::chrono::microseconds kShortestPause(20);

// Pauses between looks: none at first, then the processor is offered to others, then sleeps of an eighth of the time
// waited so far, so that a wait ends late by little in proportion.
class LookPause {
 public:
  LookPause(bool may_spin, std::chrono::microseconds longest)
      : spin_rounds_(may_spin ? kSpinRounds : 0), longest_(longest) {}

  void pause(steady_clock::duration waited) {
    if (spin_rounds_ > 0) {
      --spin_rounds_;
    } else if (waited < kYieldTime) {
      sched_yield();
    } else {
      const auto share = std::chrono::duration_cast<std::chrono::microseconds>(waited / 8);
      std::this_thread::sleep_for(std::clamp(share, kShortestPause, longest_));
    }
  }

 private:
  int spin_rounds_;
  std::chrono::microseconds longest_;
};

// Windows are made in one machine only, in shared memory; Open MPI 4.1 would rather take another of its ways. "rdma"
// names a shared file by a number that groups without a common rank share: when they make windows at the same time, a
// rank dies of a bus error (its issue 9492). "pt2pt" and "ucx" wait for ever in a flush while the target does not call
// them. Who has set this variable decides; other libraries do not read it. Call it while the process has one thread.
void choose_sound_windows() { ::setenv("OMPI_MCA_osc", "^rdma,pt2pt,ucx", 0); }

// One write, so that the paragraphs of several ranks do not mix.
void print_paragraph(std::string text) {
  text += '\n';
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = ::write(STDERR_FILENO, text.data() + written, text.size() - written);
    if (count <= 0) return;
    written += static_cast<size_t>(count);
  }
}

}  // namespace

MpiTurn::~MpiTurn() {
  if (session_ == nullptr) return;
  session_->end_operation();
  session_->turn_.unlock();
}

MpiSession::MpiSession(std::chrono::milliseconds timeout) : timeout_(timeout), watchdog_([this] { watch(); }) {}

Result<std::unique_ptr<MpiSession>> MpiSession::start(std::chrono::milliseconds timeout) {
  int is_initialized = 0;
  MPI_Initialized(&is_initialized);
  if (is_initialized != 0) return fail(Error::failed("MPI can be started only once in a process."));
  choose_sound_windows();
  std::unique_ptr<MpiSession> session(new MpiSession(timeout));
  GIMBAL_RETURN_IF_ERROR(session->start_mpi());
  GIMBAL_ASSIGN_OR_RETURN(session->host_channel_, open_mpi_host_channel(session.get()));
  return session;
}

Status MpiSession::start_mpi() {
  turn_.lock();
  const MpiTurn turn(this);
  begin_operation(nullptr, "the start of MPI");
  int level = MPI_THREAD_SINGLE;
  GIMBAL_RETURN_IF_ERROR(check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread"));
  is_started_ = true;
  if (level < MPI_THREAD_SERIALIZED) {
    return fail_with(Error::failed("This MPI library does not let several threads call it, even one after the other."));
  }
  GIMBAL_RETURN_IF_ERROR(check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
  int rank = 0;
  int size = 0;
  GIMBAL_RETURN_IF_ERROR(check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size"));
  GIMBAL_RETURN_IF_ERROR(check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank"));
  size_ = size;
  rank_ = rank;
  MPI_Comm machine = MPI_COMM_NULL;
  GIMBAL_RETURN_IF_ERROR(check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine),
                               "MPI_Comm_split_type"));
  int num_local = 0;
  GIMBAL_RETURN_IF_ERROR(check(MPI_Comm_size(machine, &num_local), "MPI_Comm_size"));
  GIMBAL_RETURN_IF_ERROR(check(MPI_Comm_free(&machine), "MPI_Comm_free"));
  // Not the affinity: mpirun may have bound every rank to one processor.
  may_spin_ = num_local <= sysconf(_SC_NPROCESSORS_ONLN);
  return {};
}

// MPI_Finalize waits for all ranks inside mpirun, and mpirun of Open MPI 4.1 may crash when one of those that wait
// dies.
Status MpiSession::meet_at_end() {
  MPI_Request request = MPI_REQUEST_NULL;
  {
    GIMBAL_ASSIGN_OR_RETURN(const MpiTurn turn, take_turn(nullptr));
    GIMBAL_RETURN_IF_ERROR(check(MPI_Ibarrier(MPI_COMM_WORLD, &request), "MPI_Ibarrier"));
  }
  MpiWait wait;
  wait.is_done = [this, &request]() -> Result<bool> {
    int have_come = 0;
    GIMBAL_RETURN_IF_ERROR(check(MPI_Test(&request, &have_come, MPI_STATUS_IGNORE), "MPI_Test"));
    return have_come != 0;
  };
  wait.on_timeout = [this] {
    return Error::failed(fmt::format("{} for all ranks. One is stuck or has more to do than its peers.",
                                     describe_wait("the end of the job")));
  };
  return this->wait(wait);
}

MpiSession::~MpiSession() {
  host_channel_.reset();
  if (is_started_ && !has_failed()) {
    if (const Status status = meet_at_end(); !status) {
      print_paragraph(fmt::format("{}: {}", name(), status.error().message));
    }
  }
  if (is_started_ && !has_failed()) {
    turn_.lock();
    const MpiTurn turn(this);
    begin_operation(nullptr, "the end of MPI");
    MPI_Finalize();
  }
  {
    const std::lock_guard lock(mutex_);
    must_stop_watching_ = true;
  }
  stop_watching_.notify_all();
  watchdog_.join();
}

std::unique_ptr<HostComm> MpiSession::host_comm() { return std::make_unique<MpiHostComm>(this, host_channel_); }

Result<std::unique_ptr<DeviceComm>> MpiSession::device_comm(const std::vector<int>& world_ranks, CommState* state) {
  return MpiDeviceComm::create(this, world_ranks, state);
}

std::string MpiSession::name() const {
  return rank() < 0 ? "a rank that MPI has not numbered yet" : fmt::format("rank {} of {}", rank(), size());
}

void MpiSession::abort(const Error& error) {
  print_paragraph(fmt::format("{}: {}", name(), error.message));
  is_aborting_.store(true, std::memory_order_release);
  std::this_thread::sleep_for(kAbortDelay);
  // The turn is never given back: from here on no thread of this process calls MPI.
  if (turn_.try_lock_for(std::chrono::seconds(1))) MPI_Abort(MPI_COMM_WORLD, 1);
  ::_exit(1);
}

void MpiSession::end_process(std::string_view why) const {
  print_paragraph(fmt::format("{}: {}", name(), why));
  ::_exit(1);
}

void MpiSession::begin_operation(const CommState* state, const char* what) {
  operation_state_.store(state, std::memory_order_relaxed);
  operation_what_.store(what, std::memory_order_relaxed);
  operations_.fetch_add(1, std::memory_order_release);
}

void MpiSession::end_operation() { operations_.fetch_add(1, std::memory_order_release); }

void MpiSession::watch() {
  const auto limit = timeout_ + kWatchdogMargin;
  uint64_t seen = 0;
  auto seen_since = steady_clock::now();
  auto aborting_since = steady_clock::time_point::max();
  std::unique_lock lock(mutex_);
  while (!stop_watching_.wait_for(lock, kWatchdogPeriod, [&] { return must_stop_watching_; })) {
    const auto now = steady_clock::now();
    if (is_aborting_.load(std::memory_order_acquire)) {
      aborting_since = std::min(aborting_since, now);
      if (now - aborting_since > kAbortLimit) end_process("the job could not be ended through MPI; this process ends.");
    }
    const uint64_t operations = operations_.load(std::memory_order_acquire);
    if (operations != seen) {
      seen = operations;
      seen_since = now;
    }
    if (seen % 2 == 0 || now - seen_since < limit) continue;
    const CommState* state = operation_state_.load(std::memory_order_relaxed);
    end_process(
        fmt::format("a call of MPI in {} has not returned for {:.1f} s (--comm-timeout-s and {} s more). A rank is "
                    "stuck or has ended. This process ends.",
                    state != nullptr ? describe_position(*state) : operation_what_.load(),
                    std::chrono::duration<double>(now - seen_since).count(), kWatchdogMargin.count()));
  }
}

Result<MpiTurn> MpiSession::take_turn(const CommState* state) {
  turn_.lock();
  begin_operation(state, "host messages");
  MpiTurn turn(this);
  if (!has_failed()) return turn;
  const std::lock_guard lock(mutex_);
  return fail(*failure_);
}

Status MpiSession::wait(const MpiWait& wait) {
  const auto start = steady_clock::now();
  LookPause pause(may_spin_, wait.longest_pause);
  for (;;) {
    // Read before the look: a rank that was kept from running looks once more before it complains.
    const auto waited = steady_clock::now() - start;
    {
      GIMBAL_ASSIGN_OR_RETURN(const MpiTurn turn, take_turn(wait.state));
      GIMBAL_ASSIGN_OR_RETURN(const bool is_done, wait.is_done());
      if (is_done) return {};
      if (wait.patience == Patience::kTimeout && waited >= timeout_) return fail_with(wait.on_timeout());
    }
    pause.pause(waited);
  }
}

std::string MpiSession::describe_code(int code) {
  std::array<char, MPI_MAX_ERROR_STRING + 1> text = {};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return text.data();
}

Status MpiSession::check(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return {};
  return fail_with(Error::failed(fmt::format("{} failed in {}: {}.", call, name(), describe_code(code))));
}

tl::unexpected<Error> MpiSession::fail_with(Error error) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = std::move(error);
  has_failed_.store(true, std::memory_order_release);
  return fail(*failure_);
}

std::string MpiSession::describe_wait(std::string_view position) const {
  return fmt::format("Rank {} of {} waited {:.1f} s (--comm-timeout-s) in {}", rank(), size(),
                     std::chrono::duration<double>(timeout_).count(), position);
}

int MpiSession::next_group_tag(const std::vector<int>& world_ranks) {
  // Every member makes a group of the same list equally often, but not equally many other groups.
  const std::lock_guard lock(mutex_);
  uint32_t mixed = 2166136261u;
  for (const int rank : world_ranks) mixed = (mixed ^ static_cast<uint32_t>(rank)) * 16777619u;
  // MPI promises tags up to 32767 only.
  return static_cast<int>((mixed + static_cast<uint32_t>(num_groups_[world_ranks]++)) % 32768u);
}

struct MpiOutbox::Letter {
  std::shared_ptr<const void> owner;
  MPI_Request request = MPI_REQUEST_NULL;
};

MpiOutbox::MpiOutbox(MpiSession* session, CommState* state, int communicator)
    : session_(session), state_(state), communicator_(communicator) {}

MpiOutbox::~MpiOutbox() {
  if (letters_.empty() || session_->has_failed()) return;
  if (state_ != nullptr) state_->verb.store(CommVerb::kSend, std::memory_order_relaxed);
  const std::string position = state_ != nullptr ? describe_position(*state_) : "host messages";
  MpiWait wait;
  wait.state = state_;
  wait.is_done = [this]() -> Result<bool> {
    GIMBAL_RETURN_IF_ERROR(let_go_of_sent());
    return letters_.empty();
  };
  wait.on_timeout = [this, &position] {
    return Error::failed(
        fmt::format("{} for {} of its messages to be taken.", session_->describe_wait(position), letters_.size()));
  };
  // There is nobody to return it to.
  if (const Status status = session_->wait(wait); !status) spdlog::error("{}", status.error().message);
  if (state_ != nullptr) state_->verb.store(CommVerb::kIdle, std::memory_order_relaxed);
}

MpiOutbox::Buffer MpiOutbox::take_buffer() {
  for (const Buffer& buffer : buffers_) {
    if (buffer.use_count() > 1) continue;
    buffer->clear();
    return buffer;
  }
  auto buffer = std::make_shared<std::vector<std::byte>>();
  if (buffers_.size() < kMostBuffers) buffers_.push_back(buffer);
  return buffer;
}

Status MpiOutbox::send(int peer, int tag, std::span<const std::byte> message, std::shared_ptr<const void> owner) {
  GIMBAL_CHECK_LE(message.size(), static_cast<size_t>(INT_MAX));
  GIMBAL_ASSIGN_OR_RETURN(const MpiTurn turn, session_->take_turn(state_));
  GIMBAL_RETURN_IF_ERROR(let_go_of_sent());
  Letter letter{std::move(owner)};
  GIMBAL_RETURN_IF_ERROR(session_->check(MPI_Isend(message.data(), static_cast<int>(message.size()), MPI_BYTE, peer,
                                                   tag, MPI_Comm_f2c(communicator_), &letter.request),
                                         "MPI_Isend"));
  letters_.push_back(std::move(letter));
  return {};
}

Status MpiOutbox::let_go_of_sent() {
  for (Letter& letter : letters_) {
    int is_sent = 0;
    GIMBAL_RETURN_IF_ERROR(session_->check(MPI_Test(&letter.request, &is_sent, MPI_STATUS_IGNORE), "MPI_Test"));
    if (is_sent != 0) letter.owner.reset();
  }
  std::erase_if(letters_, [](const Letter& letter) { return letter.owner == nullptr; });
  return {};
}

}  // namespace gimbal
