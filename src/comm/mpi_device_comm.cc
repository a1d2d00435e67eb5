#include "comm/mpi_device_comm.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <spdlog/spdlog.h>

#include "base/byte_size.h"
#include "base/check.h"
#include "tensor/host_buffer.h"

namespace gimbal {
namespace {

// Up to here an all_reduce sends whole vectors to everybody: one round of messages instead of two.
constexpr size_t kMostValuesAtOnce = 8 * 1024;
// MPI counts in int.
constexpr uint64_t kMostBytesOfPiece = uint64_t{1} << 30;
constexpr uint64_t kLineBytes = 64;

// Messages of different verbs never match each other; a receive takes what a send has sent.
int tag_of(CommVerb verb) { return static_cast<int>(verb == CommVerb::kReceive ? CommVerb::kSend : verb); }

// Calls `each(begin, bytes)` for pieces that MPI can count. No bytes are one empty piece, for the peer waits for one.
template <typename Each>
Status for_each_piece(uint64_t bytes, const Each& each) {
  uint64_t begin = 0;
  do {
    const uint64_t piece = std::min(kMostBytesOfPiece, bytes - begin);
    GIMBAL_RETURN_IF_ERROR(each(begin, static_cast<int>(piece)));
    begin += piece;
  } while (begin < bytes);
  return {};
}

// What one rank and one peer have for each other in a verb.
struct PeerParts {
  std::span<const std::byte> to_peer = {};
  std::span<std::byte> from_peer = {};
};

}  // namespace

// The messages of one rank in one communicator that are waited for together. Used by one thread at a time.
class MpiTransfers {
 public:
  // `world_ranks` are the names of the communicator's ranks.
  MpiTransfers(MpiSession* session, CommState* state, MPI_Comm comm, std::vector<int> world_ranks)
      : session_(session), state_(state), comm_(comm), world_ranks_(std::move(world_ranks)) {}

  // During a turn: begins a message. `data` must stay until finish() has returned.
  Status begin_receive(int peer, int tag, std::span<std::byte> data) {
    return for_each_piece(data.size(), [&](uint64_t begin, int bytes) {
      pieces_.push_back({peer, bytes, true});
      requests_.push_back(MPI_REQUEST_NULL);
      return session_->check(MPI_Irecv(data.data() + begin, bytes, MPI_BYTE, peer, tag, comm_, &requests_.back()),
                             "MPI_Irecv");
    });
  }
  Status begin_send(int peer, int tag, std::span<const std::byte> data) {
    return for_each_piece(data.size(), [&](uint64_t begin, int bytes) {
      pieces_.push_back({peer, bytes, false});
      requests_.push_back(MPI_REQUEST_NULL);
      return session_->check(MPI_Isend(data.data() + begin, bytes, MPI_BYTE, peer, tag, comm_, &requests_.back()),
                             "MPI_Isend");
    });
  }
  // Waits until all messages begun have come and gone. Errors: peers that are late; a message of another size.
  Status finish();

 private:
  struct Piece {
    int peer;
    int bytes;
    bool is_receive;
  };
  Status check_pieces(int code);
  Error describe_late() const;
  std::string describe_peer(int peer) const;

  MpiSession* session_;
  CommState* state_;
  MPI_Comm comm_;
  std::vector<int> world_ranks_;       // [ranks of the communicator]
  std::vector<MPI_Request> requests_;  // of the messages begun
  std::vector<Piece> pieces_;          // one per request
  std::vector<MPI_Status> statuses_;   // one per request
};

Status MpiTransfers::finish() {
  statuses_.resize(requests_.size());
  MpiWait wait;
  wait.state = state_;
  wait.is_done = [this]() -> Result<bool> {
    int are_done = 0;
    const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &are_done, statuses_.data());
    if (code == MPI_SUCCESS && are_done == 0) return false;
    GIMBAL_RETURN_IF_ERROR(check_pieces(code));
    return true;
  };
  wait.on_timeout = [this] { return describe_late(); };
  GIMBAL_RETURN_IF_ERROR(session_->wait(wait));
  requests_.clear();
  pieces_.clear();
  return {};
}

Status MpiTransfers::check_pieces(int code) {
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) return session_->check(code, "MPI_Testall");
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    int error_class = MPI_SUCCESS;
    if (code == MPI_ERR_IN_STATUS) MPI_Error_class(statuses_[i].MPI_ERROR, &error_class);
    if (error_class == MPI_ERR_PENDING) continue;
    int count = piece.bytes;
    if (piece.is_receive && error_class == MPI_SUCCESS) MPI_Get_count(&statuses_[i], MPI_BYTE, &count);
    if (error_class == MPI_ERR_TRUNCATE || count != piece.bytes) {
      return session_->fail_with(Error::failed(fmt::format(
          "Rank {} of {} expected {} bytes of rank {} in {} and got {}: the ranks do not execute the same plan.",
          session_->rank(), session_->size(), piece.bytes, world_ranks_[static_cast<size_t>(piece.peer)],
          describe_position(*state_), error_class == MPI_ERR_TRUNCATE ? "more" : std::to_string(count))));
    }
    if (error_class != MPI_SUCCESS) return session_->check(statuses_[i].MPI_ERROR, "A message between ranks");
  }
  return {};
}

// A peer that came to another verb has left a message there.
std::string MpiTransfers::describe_peer(int peer) const {
  const int world_rank = world_ranks_[static_cast<size_t>(peer)];
  for (size_t i = 1; comm_ != MPI_COMM_WORLD && i < kNumCommVerbs; ++i) {
    const CommVerb verb = static_cast<CommVerb>(i);
    int has_message = 0;
    if (verb == CommVerb::kSend || verb == CommVerb::kReceive) continue;
    if (MPI_Iprobe(peer, tag_of(verb), comm_, &has_message, MPI_STATUS_IGNORE) == MPI_SUCCESS && has_message != 0) {
      return fmt::format("rank {}, which came to {} instead", world_rank, name_of(verb));
    }
  }
  return fmt::format("rank {}", world_rank);
}

Error MpiTransfers::describe_late() const {
  std::vector<int> late;
  // Who has not sent is missing; who has sent and does not take is late only when nobody is missing.
  for (const bool is_receive : {true, false}) {
    for (size_t i = 0; i < pieces_.size() && (is_receive || late.empty()); ++i) {
      int is_done = 0;
      if (pieces_[i].is_receive != is_receive) continue;
      MPI_Request_get_status(requests_[i], &is_done, MPI_STATUS_IGNORE);
      if (is_done == 0) late.push_back(pieces_[i].peer);
    }
  }
  std::sort(late.begin(), late.end());
  late.erase(std::unique(late.begin(), late.end()), late.end());
  std::vector<std::string> names;
  for (const int peer : late) names.push_back(describe_peer(peer));
  return Error::failed(fmt::format("{} for {}. A rank is stuck or far slower than its peers.",
                                   session_->describe_wait(describe_position(*state_)), fmt::join(names, "; ")));
}

// The communicator of a group; windows keep it as well.
class MpiGroup {
 public:
  MpiGroup(MpiSession* session, CommState* state, MPI_Comm comm, std::vector<int> world_ranks)
      : session_(session),
        state_(state),
        comm_(comm),
        world_ranks_(world_ranks),
        transfers_(session, state, comm, std::move(world_ranks)) {
    MPI_Comm_rank(comm_, &rank_);
  }
  ~MpiGroup() {
    if (const auto turn = session_->take_turn(state_)) MPI_Comm_free(&comm_);
  }
  MpiGroup(const MpiGroup&) = delete;
  MpiGroup& operator=(const MpiGroup&) = delete;

  MpiSession* session() const { return session_; }
  CommState* state() const { return state_; }
  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(world_ranks_.size()); }
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  MpiTransfers& transfers() { return transfers_; }
  // Whether all ranks of the group share a machine; all give the same answer.
  bool is_in_one_machine() const { return is_in_one_machine_; }
  // During a turn; all ranks call it, and it blocks until they have come.
  Status find_machine();
  // Above the tags of the verbs, one for each window in the order in which they are made.
  int next_window_tag() { return static_cast<int>(kNumCommVerbs) + num_windows_++ % 30000; }

  // Every rank sends `parts[p].to_peer` to p and takes `parts[p].from_peer`, itself included. All ranks call it.
  Status exchange(CommVerb verb, std::span<const PeerParts> parts);
  Error describe_late_signal(int64_t index, uint64_t is, uint64_t wanted) const;
  // Returns when all ranks have come.
  Status meet(CommVerb verb) { return exchange(verb, std::vector<PeerParts>(world_ranks_.size())); }

 private:
  MpiSession* session_;
  CommState* state_;
  MPI_Comm comm_;
  int rank_ = 0;
  bool is_in_one_machine_ = false;
  int num_windows_ = 0;
  std::vector<int> world_ranks_;  // [size]
  MpiTransfers transfers_;
};

Error MpiGroup::describe_late_signal(int64_t index, uint64_t is, uint64_t wanted) const {
  return Error::failed(fmt::format(
      "{} for signal {} of its window: it is {}, not {}. Its peers are the ranks {}; one is stuck or far slower than "
      "the "
      "others.",
      session_->describe_wait(describe_position(*state_)), index, is, wanted, fmt::join(world_ranks_, ", ")));
}

Status MpiGroup::find_machine() {
  MPI_Comm machine = MPI_COMM_NULL;
  int num_here = 0;
  GIMBAL_RETURN_IF_ERROR(session_->check(
      MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine), "MPI_Comm_split_type"));
  GIMBAL_RETURN_IF_ERROR(session_->check(MPI_Comm_size(machine, &num_here), "MPI_Comm_size"));
  is_in_one_machine_ = num_here == size();
  return session_->check(MPI_Comm_free(&machine), "MPI_Comm_free");
}

Status MpiGroup::exchange(CommVerb verb, std::span<const PeerParts> parts) {
  {
    GIMBAL_ASSIGN_OR_RETURN(const MpiTurn turn, session_->take_turn(state_));
    // From the next rank on, so that not all ranks send to rank 0 first.
    for (int step = 1; step < size(); ++step) {
      const int peer = (rank_ + size() - step) % size();
      GIMBAL_RETURN_IF_ERROR(transfers_.begin_receive(peer, tag_of(verb), parts[static_cast<size_t>(peer)].from_peer));
    }
    for (int step = 1; step < size(); ++step) {
      const int peer = (rank_ + step) % size();
      GIMBAL_RETURN_IF_ERROR(transfers_.begin_send(peer, tag_of(verb), parts[static_cast<size_t>(peer)].to_peer));
    }
  }
  const PeerParts& own = parts[static_cast<size_t>(rank_)];
  GIMBAL_CHECK_EQ(own.to_peer.size(), own.from_peer.size());
  if (!own.to_peer.empty()) std::memmove(own.from_peer.data(), own.to_peer.data(), own.to_peer.size());
  return transfers_.finish();
}

namespace {

// Memory of MPI: the signals, then the data from the next cache line on.
class MpiWindow final : public PeerWindow {
 public:
  static Result<std::unique_ptr<PeerWindow>> create(std::shared_ptr<MpiGroup> group, uint64_t bytes,
                                                    int64_t num_signals);
  MpiWindow(std::shared_ptr<MpiGroup> group, uint64_t bytes, int64_t num_signals)
      : group_(std::move(group)),
        bytes_(bytes),
        num_signals_(num_signals),
        data_begin_((static_cast<uint64_t>(num_signals) * sizeof(uint64_t) + kLineBytes - 1) / kLineBytes *
                    kLineBytes) {}
  ~MpiWindow() override;

  std::byte* local() override { return base_ + data_begin_; }
  Status put(int peer, uint64_t offset, std::span<const std::byte> data) override;
  Status signal(int peer, int64_t index, uint64_t value) override;
  Status wait_signal(int64_t index, uint64_t value) override;

 private:
  Status allocate();
  Status exchange_starts();
  Status check(int code, std::string_view call) { return group_->session()->check(code, call); }
  Result<MpiTurn> take_turn() { return group_->session()->take_turn(group_->state()); }
  // The own signal; peers change it at any time.
  uint64_t read_signal(int64_t index) {
    auto* signals = reinterpret_cast<uint64_t*>(base_);
    return std::atomic_ref<uint64_t>(signals[index]).load(std::memory_order_acquire);
  }

  std::shared_ptr<MpiGroup> group_;
  uint64_t bytes_;
  int64_t num_signals_;
  uint64_t data_begin_;
  MPI_Win window_ = MPI_WIN_NULL;
  std::byte* base_ = nullptr;     // on a cache line
  std::vector<uint64_t> starts_;  // [size], where base_ of each rank is in its part of the window
};

Result<std::unique_ptr<PeerWindow>> MpiWindow::create(std::shared_ptr<MpiGroup> group, uint64_t bytes,
                                                      int64_t num_signals) {
  auto window = std::make_unique<MpiWindow>(std::move(group), bytes, num_signals);
  // MPI_Win_allocate blocks until all ranks have come: let them come before.
  GIMBAL_RETURN_IF_ERROR(window->group_->meet(CommVerb::kShare));
  GIMBAL_RETURN_IF_ERROR(window->allocate());
  GIMBAL_RETURN_IF_ERROR(window->exchange_starts());
  return window;
}

Status MpiWindow::allocate() {
  GIMBAL_ASSIGN_OR_RETURN(const MpiTurn turn, take_turn());
  const uint64_t total = data_begin_ + bytes_ + kLineBytes;
  MPI_Info info = MPI_INFO_NULL;
  GIMBAL_RETURN_IF_ERROR(check(MPI_Info_create(&info), "MPI_Info_create"));
  MPI_Info_set(info, "alloc_shared_noncontig",
               "true");  // each rank's part on pages, and so on a memory node, of its own
  MPI_Info_set(info, "same_disp_unit", "true");
  MPI_Info_set(info, "acc_single_intrinsic", "true");  // signals are single numbers
  const int code =
      MPI_Win_allocate(static_cast<MPI_Aint>(total), 1, info, group_->comm(), static_cast<void*>(&base_), &window_);
  MPI_Info_free(&info);
  if (code != MPI_SUCCESS) {
    return group_->session()->fail_with(Error::failed(fmt::format(
        "Rank {} of {} could not make an exchange window of {} per rank ({}). Those of all ranks of a "
        "machine must fit into its /dev/shm; otherwise choose another token exchange (--moe-a2a-backend).",
        group_->session()->rank(), group_->session()->size(), format_bytes(total), MpiSession::describe_code(code))));
  }
  GIMBAL_RETURN_IF_ERROR(check(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN), "MPI_Win_set_errhandler"));
  int* model = nullptr;
  int has_model = 0;
  GIMBAL_RETURN_IF_ERROR(
      check(MPI_Win_get_attr(window_, MPI_WIN_MODEL, static_cast<void*>(&model), &has_model), "MPI_Win_get_attr"));
  if (has_model == 0 || *model != MPI_WIN_UNIFIED) {
    return group_->session()->fail_with(
        Error::failed("This MPI library keeps a second copy of window memory; an exchange window needs one copy."));
  }
  GIMBAL_RETURN_IF_ERROR(check(MPI_Win_lock_all(0, window_), "MPI_Win_lock_all"));
  std::memset(base_, 0, total);
  return check(MPI_Win_sync(window_), "MPI_Win_sync");
}

// MPI aligns a part to the page or to a few bytes, as it likes. Also nobody puts before all windows are zeroed.
Status MpiWindow::exchange_starts() {
  const uint64_t own = (kLineBytes - reinterpret_cast<uintptr_t>(base_) % kLineBytes) % kLineBytes;
  base_ += own;
  starts_.resize(static_cast<size_t>(group_->size()));
  std::vector<PeerParts> parts;
  for (uint64_t& start : starts_) {
    parts.push_back({std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(&start, 1))});
  }
  return group_->exchange(CommVerb::kShare, parts);
}

MpiWindow::~MpiWindow() {
  if (window_ == MPI_WIN_NULL || group_->session()->has_failed()) return;
  // MPI_Win_free blocks until all ranks have come: let them come before.
  const CommVerbScope scope(*group_->state(), CommVerb::kShare, 0);
  if (const Status status = group_->meet(CommVerb::kShare); !status) {
    spdlog::error("{}", status.error().message);
    return;
  }
  if (const auto turn = take_turn()) {
    MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }
}

Status MpiWindow::put(int peer, uint64_t offset, std::span<const std::byte> data) {
  const CommVerbScope scope(*group_->state(), CommVerb::kPut, peer == group_->rank() ? 0 : data.size());
  GIMBAL_CHECK(peer >= 0 && peer < group_->size());
  GIMBAL_CHECK_LE(offset + data.size(), bytes_);
  if (data.empty()) return {};
  if (peer == group_->rank()) {
    std::memcpy(local() + offset, data.data(), data.size());
    return {};
  }
  GIMBAL_ASSIGN_OR_RETURN(const MpiTurn turn, take_turn());
  const uint64_t target = starts_[static_cast<size_t>(peer)] + data_begin_ + offset;
  GIMBAL_RETURN_IF_ERROR(for_each_piece(data.size(), [&](uint64_t begin, int bytes) {
    return check(MPI_Put(data.data() + begin, bytes, MPI_BYTE, peer, static_cast<MPI_Aint>(target + begin), bytes,
                         MPI_BYTE, window_),
                 "MPI_Put");
  }));
  // The caller may change `data` now.
  return check(MPI_Win_flush_local(peer, window_), "MPI_Win_flush_local");
}

Status MpiWindow::signal(int peer, int64_t index, uint64_t value) {
  GIMBAL_CHECK(peer >= 0 && peer < group_->size());
  GIMBAL_CHECK(index >= 0 && index < num_signals_);
  GIMBAL_ASSIGN_OR_RETURN(const MpiTurn turn, take_turn());
  // Marked but not counted: a signal is the end of a put. It matters when the flush blocks.
  group_->state()->verb.store(CommVerb::kPut, std::memory_order_relaxed);
  GIMBAL_RETURN_IF_ERROR(check(MPI_Win_flush(peer, window_), "MPI_Win_flush"));
  const auto target =
      static_cast<MPI_Aint>(starts_[static_cast<size_t>(peer)] + static_cast<uint64_t>(index) * sizeof(uint64_t));
  GIMBAL_RETURN_IF_ERROR(check(
      MPI_Accumulate(&value, 1, MPI_UINT64_T, peer, target, 1, MPI_UINT64_T, MPI_REPLACE, window_), "MPI_Accumulate"));
  GIMBAL_RETURN_IF_ERROR(check(MPI_Win_flush(peer, window_), "MPI_Win_flush"));
  group_->state()->verb.store(CommVerb::kIdle, std::memory_order_relaxed);
  return {};
}

Status MpiWindow::wait_signal(int64_t index, uint64_t value) {
  GIMBAL_CHECK(index >= 0 && index < num_signals_);
  const CommVerbScope scope(*group_->state(), CommVerb::kWaitSignal, 0);
  MpiWait wait;
  wait.state = group_->state();
  wait.is_done = [&]() -> Result<bool> {
    if (read_signal(index) < value) {
      // Where the network does not write memory by itself, what arrives is written during calls of this rank.
      int has_message = 0;
      GIMBAL_RETURN_IF_ERROR(check(
          MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, group_->comm(), &has_message, MPI_STATUS_IGNORE), "MPI_Iprobe"));
      if (read_signal(index) < value) return false;
    }
    GIMBAL_RETURN_IF_ERROR(check(MPI_Win_sync(window_), "MPI_Win_sync"));
    return true;
  };
  wait.on_timeout = [&] { return group_->describe_late_signal(index, read_signal(index), value); };
  return group_->session()->wait(wait);
}

// Own memory that peers write to by messages, each taken and applied in order while this rank waits for a signal.
class MpiMessageWindow final : public PeerWindow {
 public:
  static Result<std::unique_ptr<PeerWindow>> create(std::shared_ptr<MpiGroup> group, uint64_t bytes,
                                                    int64_t num_signals);
  MpiMessageWindow(std::shared_ptr<MpiGroup> group, HostBuffer memory, uint64_t bytes, int64_t num_signals)
      : group_(std::move(group)),
        tag_(group_->next_window_tag()),
        bytes_(bytes),
        memory_(std::move(memory)),
        signals_(static_cast<size_t>(num_signals)),
        num_sent_(static_cast<size_t>(group_->size())),
        num_taken_(static_cast<size_t>(group_->size())),
        outbox_(group_->session(), group_->state(), MPI_Comm_c2f(group_->comm())) {}
  ~MpiMessageWindow() override;

  std::byte* local() override { return memory_.data(); }
  Status put(int peer, uint64_t offset, std::span<const std::byte> data) override;
  Status signal(int peer, int64_t index, uint64_t value) override;
  Status wait_signal(int64_t index, uint64_t value) override;

 private:
  // Before the data of a message. A signal has no data.
  struct Head {
    int64_t signal = -1;  // -1: a put
    uint64_t number = 0;  // the signal's value or the put's offset
  };
  Status send(int peer, const Head& head, std::span<const std::byte> data);
  // During a turn: takes the next message when there is one; false: none has come, or not all of it.
  Result<bool> take_message();
  void apply_message();
  Status take_the_rest();

  std::shared_ptr<MpiGroup> group_;
  int tag_;
  uint64_t bytes_;
  HostBuffer memory_;
  std::vector<uint64_t> signals_;    // [num_signals]
  std::vector<uint64_t> num_sent_;   // [size], messages to each rank
  std::vector<uint64_t> num_taken_;  // [size], messages of each rank
  std::vector<std::byte> message_;   // the one that is being taken
  MPI_Request taking_ = MPI_REQUEST_NULL;
  int taking_from_ = -1;  // -1: none is being taken
  MpiOutbox outbox_;
};

Result<std::unique_ptr<PeerWindow>> MpiMessageWindow::create(std::shared_ptr<MpiGroup> group, uint64_t bytes,
                                                             int64_t num_signals) {
  GIMBAL_RETURN_IF_ERROR(group->meet(CommVerb::kShare));
  auto memory = HostBuffer::allocate(std::max(bytes, uint64_t{1}));
  if (!memory) return group->session()->fail_with(std::move(memory.error()));
  return std::make_unique<MpiMessageWindow>(std::move(group), std::move(*memory), bytes, num_signals);
}

MpiMessageWindow::~MpiMessageWindow() {
  if (group_->session()->has_failed()) return;
  const CommVerbScope scope(*group_->state(), CommVerb::kShare, 0);
  if (const Status status = take_the_rest(); !status) spdlog::error("{}", status.error().message);
}

// Messages that nobody waited for must be taken all the same, or their senders would keep them for ever.
Status MpiMessageWindow::take_the_rest() {
  std::vector<uint64_t> to_take(num_sent_.size());
  std::vector<PeerParts> parts;
  for (size_t peer = 0; peer < to_take.size(); ++peer) {
    parts.push_back(
        {std::as_bytes(std::span(&num_sent_[peer], 1)), std::as_writable_bytes(std::span(&to_take[peer], 1))});
  }
  GIMBAL_RETURN_IF_ERROR(group_->exchange(CommVerb::kShare, parts));
  MpiWait wait;
  wait.state = group_->state();
  wait.is_done = [&]() -> Result<bool> {
    while (num_taken_ != to_take) {
      GIMBAL_ASSIGN_OR_RETURN(const bool has_taken, take_message());
      if (!has_taken) return false;
    }
    return true;
  };
  wait.on_timeout = [this] {
    return Error::failed(fmt::format("{} for the last messages to its window of the ranks {}.",
                                     group_->session()->describe_wait(describe_position(*group_->state())),
                                     fmt::join(group_->world_ranks(), ", ")));
  };
  return group_->session()->wait(wait);
}

Status MpiMessageWindow::send(int peer, const Head& head, std::span<const std::byte> data) {
  const MpiOutbox::Buffer message = outbox_.take_buffer();
  const std::span<const std::byte> head_bytes = std::as_bytes(std::span(&head, 1));
  message->reserve(head_bytes.size() + data.size());
  message->insert(message->end(), head_bytes.begin(), head_bytes.end());
  message->insert(message->end(), data.begin(), data.end());
  GIMBAL_RETURN_IF_ERROR(outbox_.send(peer, tag_, *message, message));
  ++num_sent_[static_cast<size_t>(peer)];
  return {};
}

Status MpiMessageWindow::put(int peer, uint64_t offset, std::span<const std::byte> data) {
  const CommVerbScope scope(*group_->state(), CommVerb::kPut, peer == group_->rank() ? 0 : data.size());
  GIMBAL_CHECK(peer >= 0 && peer < group_->size());
  GIMBAL_CHECK_LE(offset + data.size(), bytes_);
  if (data.empty()) return {};
  if (peer == group_->rank()) {
    std::memcpy(local() + offset, data.data(), data.size());
    return {};
  }
  // Shorter than a piece, so that a put with its head is one message.
  constexpr uint64_t kMostBytesOfPut = kMostBytesOfPiece / 2;
  for (uint64_t begin = 0; begin < data.size(); begin += kMostBytesOfPut) {
    const std::span<const std::byte> part = data.subspan(begin, std::min(kMostBytesOfPut, data.size() - begin));
    GIMBAL_RETURN_IF_ERROR(send(peer, {-1, offset + begin}, part));
  }
  return {};
}

Status MpiMessageWindow::signal(int peer, int64_t index, uint64_t value) {
  GIMBAL_CHECK(peer >= 0 && peer < group_->size());
  GIMBAL_CHECK(index >= 0 && static_cast<size_t>(index) < signals_.size());
  if (peer != group_->rank()) return send(peer, {index, value}, {});
  signals_[static_cast<size_t>(index)] = value;
  return {};
}

Status MpiMessageWindow::wait_signal(int64_t index, uint64_t value) {
  GIMBAL_CHECK(index >= 0 && static_cast<size_t>(index) < signals_.size());
  const CommVerbScope scope(*group_->state(), CommVerb::kWaitSignal, 0);
  const uint64_t& signal = signals_[static_cast<size_t>(index)];
  MpiWait wait;
  wait.state = group_->state();
  wait.is_done = [&]() -> Result<bool> {
    while (signal < value) {
      GIMBAL_ASSIGN_OR_RETURN(const bool has_taken, take_message());
      if (!has_taken) return false;
    }
    return true;
  };
  wait.on_timeout = [&] { return group_->describe_late_signal(index, signal, value); };
  return group_->session()->wait(wait);
}

Result<bool> MpiMessageWindow::take_message() {
  MpiSession* session = group_->session();
  int flag = 0;
  if (taking_from_ < 0) {
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    int count = 0;
    GIMBAL_RETURN_IF_ERROR(
        session->check(MPI_Improbe(MPI_ANY_SOURCE, tag_, group_->comm(), &flag, &message, &status), "MPI_Improbe"));
    if (flag == 0) return false;
    GIMBAL_RETURN_IF_ERROR(session->check(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count"));
    message_.resize(static_cast<size_t>(count));
    GIMBAL_RETURN_IF_ERROR(
        session->check(MPI_Imrecv(message_.data(), count, MPI_BYTE, &message, &taking_), "MPI_Imrecv"));
    taking_from_ = status.MPI_SOURCE;
  }
  GIMBAL_RETURN_IF_ERROR(session->check(MPI_Test(&taking_, &flag, MPI_STATUS_IGNORE), "MPI_Test"));
  if (flag == 0) return false;
  apply_message();
  ++num_taken_[static_cast<size_t>(std::exchange(taking_from_, -1))];
  return true;
}

void MpiMessageWindow::apply_message() {
  Head head;
  GIMBAL_CHECK_GE(message_.size(), sizeof(head));
  std::memcpy(&head, message_.data(), sizeof(head));
  if (head.signal >= 0) {
    GIMBAL_CHECK_LT(static_cast<size_t>(head.signal), signals_.size());
    signals_[static_cast<size_t>(head.signal)] = head.number;
    return;
  }
  GIMBAL_CHECK_LE(head.number + message_.size() - sizeof(head), bytes_);
  std::memcpy(local() + head.number, message_.data() + sizeof(head), message_.size() - sizeof(head));
}

// Lets all members come, so that the blocking call that follows is short and a missing rank has a name.
Status meet_members(MpiSession* session, const std::vector<int>& world_ranks, int tag, CommState* state) {
  std::vector<int> names(static_cast<size_t>(session->size()));
  for (size_t i = 0; i < names.size(); ++i) names[i] = static_cast<int>(i);
  MpiTransfers transfers(session, state, MPI_COMM_WORLD, std::move(names));
  {
    GIMBAL_ASSIGN_OR_RETURN(const MpiTurn turn, session->take_turn(state));
    for (const int member : world_ranks) {
      if (member == session->rank()) continue;
      GIMBAL_RETURN_IF_ERROR(transfers.begin_receive(member, tag, {}));
      GIMBAL_RETURN_IF_ERROR(transfers.begin_send(member, tag, {}));
    }
  }
  return transfers.finish();
}

}  // namespace

Result<std::unique_ptr<DeviceComm>> MpiDeviceComm::create(MpiSession* session, const std::vector<int>& world_ranks,
                                                          CommState* state) {
  GIMBAL_CHECK(std::find(world_ranks.begin(), world_ranks.end(), session->rank()) != world_ranks.end());
  const CommVerbScope scope(*state, CommVerb::kBarrier, 0);
  const int tag = session->next_group_tag(world_ranks);
  GIMBAL_RETURN_IF_ERROR(meet_members(session, world_ranks, tag, state));
  MPI_Comm comm = MPI_COMM_NULL;
  {
    GIMBAL_ASSIGN_OR_RETURN(const MpiTurn turn, session->take_turn(state));
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group members = MPI_GROUP_NULL;
    GIMBAL_RETURN_IF_ERROR(session->check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group"));
    GIMBAL_RETURN_IF_ERROR(session->check(
        MPI_Group_incl(world, static_cast<int>(world_ranks.size()), world_ranks.data(), &members), "MPI_Group_incl"));
    GIMBAL_RETURN_IF_ERROR(
        session->check(MPI_Comm_create_group(MPI_COMM_WORLD, members, tag, &comm), "MPI_Comm_create_group"));
    MPI_Group_free(&members);
    MPI_Group_free(&world);
    GIMBAL_RETURN_IF_ERROR(session->check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
  }
  auto group = std::make_shared<MpiGroup>(session, state, comm, world_ranks);
  {
    GIMBAL_ASSIGN_OR_RETURN(const MpiTurn turn, session->take_turn(state));
    GIMBAL_RETURN_IF_ERROR(group->find_machine());
  }
  return std::make_unique<MpiDeviceComm>(session, std::move(group), state);
}

MpiDeviceComm::MpiDeviceComm(MpiSession* session, std::shared_ptr<MpiGroup> group, CommState* state)
    : DeviceComm(group->rank(), group->size(), state),
      session_(session),
      group_(std::move(group)),
      outbox_(session, state, MPI_Comm_c2f(group_->comm())) {}

Status MpiDeviceComm::do_barrier() { return group_->meet(CommVerb::kBarrier); }

Status MpiDeviceComm::do_all_reduce(std::span<float> data) {
  return data.size() <= kMostValuesAtOnce ? all_reduce_at_once(data) : all_reduce_in_chunks(data);
}

Status MpiDeviceComm::all_reduce_at_once(std::span<float> data) {
  received_.resize(data.size() * static_cast<size_t>(size()));
  std::vector<PeerParts> parts;
  std::vector<const float*> vectors;
  for (int peer = 0; peer < size(); ++peer) {
    const std::span<float> theirs = std::span(received_).subspan(data.size() * static_cast<size_t>(peer), data.size());
    parts.push_back(peer == rank() ? PeerParts{} : PeerParts{std::as_bytes(data), std::as_writable_bytes(theirs)});
    vectors.push_back(peer == rank() ? data.data() : theirs.data());
  }
  GIMBAL_RETURN_IF_ERROR(group_->exchange(CommVerb::kAllReduce, parts));
  sum_in_rank_order(vectors, data);
  return {};
}

// Each rank sums one chunk of all vectors, then everybody gets the chunks of the others.
Status MpiDeviceComm::all_reduce_in_chunks(std::span<float> data) {
  const auto num_values = static_cast<int64_t>(data.size());
  std::vector<int64_t> counts;
  for (int64_t chunk = 0; chunk < size(); ++chunk) {
    counts.push_back(num_values * (chunk + 1) / size() - num_values * chunk / size());
  }
  const std::span<float> own = data.subspan(static_cast<size_t>(begin_of_part(counts, rank())),
                                            static_cast<size_t>(counts[static_cast<size_t>(rank())]));
  GIMBAL_RETURN_IF_ERROR(sum_parts(CommVerb::kAllReduce, data, counts, own));
  std::vector<PeerParts> parts;
  size_t begin = 0;
  for (const int64_t count : counts) {
    parts.push_back({std::as_bytes(own), std::as_writable_bytes(data.subspan(begin, static_cast<size_t>(count)))});
    begin += static_cast<size_t>(count);
  }
  return group_->exchange(CommVerb::kAllReduce, parts);
}

Status MpiDeviceComm::sum_parts(CommVerb verb, std::span<const float> data, std::span<const int64_t> counts,
                                std::span<float> own) {
  received_.resize(own.size() * static_cast<size_t>(size()));
  std::vector<PeerParts> parts;
  std::vector<const float*> vectors;
  size_t begin = 0;
  for (int peer = 0; peer < size(); ++peer) {
    const auto count = static_cast<size_t>(counts[static_cast<size_t>(peer)]);
    const std::span<const float> to_peer = data.subspan(begin, count);
    const std::span<float> theirs = std::span(received_).subspan(own.size() * static_cast<size_t>(peer), own.size());
    parts.push_back(peer == rank() ? PeerParts{} : PeerParts{std::as_bytes(to_peer), std::as_writable_bytes(theirs)});
    vectors.push_back(peer == rank() ? to_peer.data() : theirs.data());
    begin += count;
  }
  GIMBAL_RETURN_IF_ERROR(group_->exchange(verb, parts));
  if (!own.empty()) sum_in_rank_order(vectors, own);
  return {};
}

Status MpiDeviceComm::do_all_gather(std::span<const float> own, std::span<const int64_t> counts, std::span<float> all) {
  std::vector<PeerParts> parts;
  size_t begin = 0;
  for (const int64_t count : counts) {
    parts.push_back({std::as_bytes(own), std::as_writable_bytes(all.subspan(begin, static_cast<size_t>(count)))});
    begin += static_cast<size_t>(count);
  }
  return group_->exchange(CommVerb::kAllGather, parts);
}

Status MpiDeviceComm::do_reduce_scatter(std::span<const float> data, std::span<const int64_t> counts,
                                        std::span<float> own) {
  return sum_parts(CommVerb::kReduceScatter, data, counts, own);
}

Status MpiDeviceComm::do_all_to_all(const AllToAllArgs& args) {
  std::vector<PeerParts> parts;
  uint64_t sent = 0;
  uint64_t received = 0;
  for (size_t peer = 0; peer < args.send_bytes.size(); ++peer) {
    parts.push_back(
        {args.send.subspan(sent, args.send_bytes[peer]), args.receive.subspan(received, args.receive_bytes[peer])});
    sent += args.send_bytes[peer];
    received += args.receive_bytes[peer];
  }
  GIMBAL_CHECK_EQ(sent, args.send.size());
  GIMBAL_CHECK_EQ(received, args.receive.size());
  return group_->exchange(CommVerb::kAllToAll, parts);
}

Status MpiDeviceComm::do_send(std::span<const float> data, int peer) {
  const MpiOutbox::Buffer buffer = outbox_.take_buffer();
  const std::span<const std::byte> bytes = std::as_bytes(data);
  buffer->assign(bytes.begin(), bytes.end());
  return for_each_piece(buffer->size(), [&](uint64_t begin, int count) {
    const auto piece = std::span<const std::byte>(*buffer).subspan(begin, static_cast<size_t>(count));
    return outbox_.send(peer, tag_of(CommVerb::kSend), piece, buffer);
  });
}

Status MpiDeviceComm::do_receive(std::span<float> data, int peer) {
  {
    GIMBAL_ASSIGN_OR_RETURN(const MpiTurn turn, session_->take_turn(&state()));
    GIMBAL_RETURN_IF_ERROR(
        group_->transfers().begin_receive(peer, tag_of(CommVerb::kReceive), std::as_writable_bytes(data)));
  }
  return group_->transfers().finish();
}

Result<std::span<const void* const>> MpiDeviceComm::do_share(const void* /*own*/) {
  check_failed("shares_memory()", "processes do not share memory", __FILE__, __LINE__);
}

Result<std::unique_ptr<PeerWindow>> MpiDeviceComm::make_window(uint64_t bytes, int64_t num_signals) {
  const CommVerbScope scope(state(), CommVerb::kShare, 0);
  if (group_->is_in_one_machine() && !session_->are_machines_apart()) {
    return MpiWindow::create(group_, bytes, num_signals);
  }
  return MpiMessageWindow::create(group_, bytes, num_signals);
}

}  // namespace gimbal
