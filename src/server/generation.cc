#include "server/generation.h"

#include <sys/socket.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace gimbal {
namespace {

namespace asio = boost::asio;
using asio::experimental::awaitable_operators::operator||;

// Ends when the peer has closed its side; never ends after data that belongs to a later request has come.
asio::awaitable<bool> wait_for_disconnect(asio::ip::tcp::socket& socket) {
  const auto [error] =
      co_await socket.async_wait(asio::ip::tcp::socket::wait_read, asio::as_tuple(asio::use_awaitable));
  if (error) co_return error != asio::error::operation_aborted;
  char byte = 0;
  const ssize_t count = recv(socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  co_return count == 0 || (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

asio::awaitable<void> wait_for_timer(asio::steady_timer& timer) {
  co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
}

// How much of the end of `text` is the beginning of one of the stop texts.
size_t stop_prefix_size(const std::string& text, const std::vector<std::string>& stop) {
  size_t longest = 0;
  for (const std::string& candidate : stop) {
    for (size_t size = std::min(candidate.size() - 1, text.size()); size > longest; --size) {
      if (text.compare(text.size() - size, size, candidate, 0, size) == 0) longest = size;
    }
  }
  return longest;
}

}  // namespace

Generation::Generation(asio::any_io_executor executor, RequestGateway& gateway, const Tokenizer& tokenizer,
                       GenerationOptions options)
    : gateway_(gateway),
      options_(std::move(options)),
      detokenizer_(tokenizer, options_.skip_special_tokens),
      mailbox_(std::make_shared<Mailbox>(executor)) {}

Generation::~Generation() {
  if (is_submitted_ && !is_ended_) gateway_.abort(request_id_);
}

Status Generation::submit(const std::string& request_id, std::vector<TokenId> prompt_ids) {
  request_id_ = request_id;
  const auto deliver = [mailbox = mailbox_](const TokenEvent& event) {
    asio::post(mailbox->arrived.get_executor(), [mailbox, event] {
      mailbox->events.push_back(event);
      // An expiry in the past also ends a wait that starts later, so no arrival is ever missed.
      mailbox->arrived.expires_at(asio::steady_timer::time_point::min());
    });
  };
  GIMBAL_RETURN_IF_ERROR(gateway_.submit(
      {.request_id = request_id, .prompt_ids = std::move(prompt_ids), .sampling = options_.sampling}, deliver));
  is_submitted_ = true;
  return {};
}

asio::awaitable<void> Generation::wait_for_event(asio::ip::tcp::socket& socket) {
  mailbox_->arrived.expires_at(asio::steady_timer::time_point::max());
  if (!is_watching_) {
    co_await wait_for_timer(mailbox_->arrived);
    co_return;
  }
  const auto result = co_await (wait_for_timer(mailbox_->arrived) || wait_for_disconnect(socket));
  if (result.index() == 0) co_return;
  if (!std::get<1>(result)) {  // the next request has come early; its bytes hide a later disconnect
    is_watching_ = false;
    co_return;
  }
  gateway_.abort(request_id_);
  is_ended_ = true;
  mailbox_->events.push_back({.finish = FinishReason::kAbort});
}

asio::awaitable<GenerationPiece> Generation::next(asio::ip::tcp::socket& socket) {
  while (mailbox_->events.empty()) co_await wait_for_event(socket);
  const TokenEvent event = mailbox_->events.front();
  mailbox_->events.pop_front();
  co_return take(event);
}

GenerationPiece Generation::take(const TokenEvent& event) {
  GenerationPiece piece{.token_id = event.token_id,
                        .finish = event.finish,
                        .matched_stop_token = event.matched_stop,
                        .error = event.error};
  if (event.token_id) output_ids_.push_back(*event.token_id);
  std::string text;
  if (event.token_id && !event.is_end_token) text = detokenizer_.append(*event.token_id);
  if (event.finish) text += detokenizer_.flush();
  take_text(std::move(text), piece);
  if (piece.finish && !event.finish) gateway_.abort(request_id_);  // a stop text: the engine does not know yet
  if (piece.finish || piece.error) is_ended_ = true;
  return piece;
}

// Puts into the piece what cannot become a stop text any more.
void Generation::take_text(std::string text, GenerationPiece& piece) {
  withheld_ += text;
  size_t first = std::string::npos;
  for (const std::string& candidate : options_.stop) {
    const size_t found = withheld_.find(candidate);
    if (found >= first) continue;
    first = found;
    piece.matched_stop = candidate;
  }
  if (piece.matched_stop) {
    piece.text = withheld_.substr(0, first);
    piece.finish = FinishReason::kStop;
    piece.matched_stop_token.reset();
    withheld_.clear();
    return;
  }
  const size_t keep = piece.finish ? 0 : stop_prefix_size(withheld_, options_.stop);
  piece.text = withheld_.substr(0, withheld_.size() - keep);
  withheld_.erase(0, withheld_.size() - keep);
}

}  // namespace gimbal
