// Generation: the requests of one exchange in the engine (prompts of a batch, choices of n), seen from a route: text
// that has become certain, piece by piece, and the end of each choice.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "engine/request_gateway.h"
#include "server/client_stream.h"
#include "tokenizer/incremental_detokenizer.h"

namespace gimbal {

class ServerMetrics;

struct GenerationOptions {
  SamplingOptions sampling;
  std::vector<std::string> stop;  // texts that end the answer and are not part of it
  bool skip_special_tokens = true;
  bool keeps_stop = false;             // the stop text stays in the answer
  bool wants_log_probability = false;  // of every token
  int64_t num_top_logits = 0;
  int64_t first_scored = -1;  // prompt position from which on predictions are wanted
  int64_t priority = 0;
  std::string cache_salt = {};
  std::optional<std::chrono::milliseconds> deadline = {};
};

// One choice to generate.
struct ChoiceStart {
  std::string request_id;  // unique in the engine
  std::vector<TokenId> prompt_ids;
  GenerationOptions options;
  std::string fork_of = {};  // request id of an earlier choice with the same prompt
};

// What one event brought. The last piece of a choice has `finish` or `error`.
struct GenerationPiece {
  size_t choice = 0;
  std::string text = {};  // may be empty: half a character, or what may still become a stop text
  std::optional<TokenId> token_id = {};
  bool is_end_token = false;
  double log_probability = 0;
  RowScore score = {};
  std::vector<RowScore> prompt_scores = {};
  std::optional<FinishReason> finish = {};
  std::optional<std::string> matched_stop = {};    // the stop text
  std::optional<TokenId> matched_stop_token = {};  // or the end token
  std::optional<Error> error = {};
};

// Used on the I/O thread. When it goes away before its end, what still runs is aborted.
class Generation {
 public:
  // What outlives the object: the gateway, the tokenizer, the metrics (may be nullptr).
  struct Context {
    RequestGateway* gateway = nullptr;
    const Tokenizer* tokenizer = nullptr;
    ServerMetrics* metrics = nullptr;
  };
  struct Choice {
    std::string request_id = {};
    GenerationOptions options = {};
    int64_t prompt_tokens = 0;
    int64_t cached_tokens = 0;
    std::vector<TokenId> output_ids = {};  // end token included
    bool is_ended = false;

    std::unique_ptr<IncrementalDetokenizer> detokenizer = {};
    std::string withheld = {};  // may still become a stop text
    std::chrono::steady_clock::time_point submitted = {};
    std::chrono::steady_clock::time_point last_token = {};
  };

  Generation(boost::asio::any_io_executor executor, const Context& context);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  Status submit(ChoiceStart start);

  // The next piece of any choice, or nullopt after `patience`. While it waits, the connection is watched: when the
  // client goes away all choices are aborted and end with FinishReason::kAbort.
  boost::asio::awaitable<std::optional<GenerationPiece>> next(ClientStream& stream, std::chrono::milliseconds patience);
  boost::asio::awaitable<GenerationPiece> next(ClientStream& stream);

  // Aborts one choice, or all that still run; their last pieces come.
  void abort(size_t choice);
  void abort_all();

  bool is_ended() const;
  const std::vector<Choice>& choices() const { return choices_; }
  int64_t completion_tokens() const;
  int64_t prompt_tokens() const;  // each prompt once per choice that has its own
  int64_t cached_tokens() const;

 private:
  struct Arrival {
    size_t choice = 0;
    TokenEvent event;
  };
  // Shared with the engine's callbacks, which may come after this object is gone.
  struct Mailbox {
    explicit Mailbox(boost::asio::any_io_executor executor) : arrived(executor) {}
    std::deque<Arrival> events;
    boost::asio::steady_timer arrived;  // expires when an event comes
  };
  boost::asio::awaitable<void> wait_for_event(ClientStream& stream, std::chrono::steady_clock::time_point deadline);
  GenerationPiece take(const Arrival& arrival);
  void take_text(Choice& choice, std::string text, GenerationPiece& piece);
  void count(Choice& choice, const Arrival& arrival, const GenerationPiece& piece);

  Context context_;
  std::vector<Choice> choices_;
  std::shared_ptr<Mailbox> mailbox_;
  bool is_watching_ = true;
};

}  // namespace gimbal
