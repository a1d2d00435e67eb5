// Generation: one request in the engine, seen from a route: text that has become certain, piece by piece, and the end.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "engine/request_gateway.h"
#include "tokenizer/incremental_detokenizer.h"

namespace gimbal {

struct GenerationOptions {
  SamplingOptions sampling;
  std::vector<std::string> stop;  // texts that end the answer and are not part of it
  bool skip_special_tokens = true;
};

// What one token brought. The last piece has `finish` or `error`.
struct GenerationPiece {
  std::string text = {};  // may be empty: half a character, or what may still become a stop text
  std::optional<TokenId> token_id = {};
  std::optional<FinishReason> finish = {};
  std::optional<std::string> matched_stop = {};    // the stop text
  std::optional<TokenId> matched_stop_token = {};  // or the end token
  std::optional<Error> error = {};
};

// Used on the I/O thread. When it goes away before its end, the request is aborted.
class Generation {
 public:
  // `gateway` and `tokenizer` must outlive the object; `executor` is the I/O thread's.
  Generation(boost::asio::any_io_executor executor, RequestGateway& gateway, const Tokenizer& tokenizer,
             GenerationOptions options);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  Status submit(const std::string& request_id, std::vector<TokenId> prompt_ids);

  // The next piece. While it waits, `socket` is watched: when the client goes away the request is aborted and the piece
  // ends with FinishReason::kAbort.
  boost::asio::awaitable<GenerationPiece> next(boost::asio::ip::tcp::socket& socket);

  const std::vector<TokenId>& output_ids() const { return output_ids_; }  // end token included

 private:
  // Shared with the engine's callback, which may come after this object is gone.
  struct Mailbox {
    explicit Mailbox(boost::asio::any_io_executor executor) : arrived(executor) {}
    std::deque<TokenEvent> events;
    boost::asio::steady_timer arrived;  // expires when an event comes
  };
  boost::asio::awaitable<void> wait_for_event(boost::asio::ip::tcp::socket& socket);
  GenerationPiece take(const TokenEvent& event);
  void take_text(std::string text, GenerationPiece& piece);

  RequestGateway& gateway_;
  GenerationOptions options_;
  IncrementalDetokenizer detokenizer_;
  std::shared_ptr<Mailbox> mailbox_;
  std::string request_id_;
  std::vector<TokenId> output_ids_;
  std::string withheld_;  // may still become a stop text
  bool is_submitted_ = false;
  bool is_ended_ = false;
  bool is_watching_ = true;
};

}  // namespace gimbal
