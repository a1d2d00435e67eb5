#include "server/generation.h"

#include <sys/socket.h>

#include <algorithm>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "server/server_metrics.h"

namespace gimbal {
namespace {

namespace asio = boost::asio;
using asio::experimental::awaitable_operators::operator||;

// What a peek at the socket shows.
bool is_gone(ClientStream& stream) {
  constexpr char kTlsAlert = 0x15;  // the peer says goodbye in a record of this type
  char byte = 0;
  const ssize_t count = recv(stream.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (count == 1) return stream.is_tls() && byte == kTlsAlert;
  return count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

// Ends when the peer has closed its side (true), or when data of a later request has come (false).
asio::awaitable<bool> wait_for_disconnect(ClientStream& stream) {
  asio::ip::tcp::socket& socket = stream.socket();
  const auto [error] =
      co_await socket.async_wait(asio::ip::tcp::socket::wait_read, asio::as_tuple(asio::use_awaitable));
  if (error) co_return error != asio::error::operation_aborted;
  co_return is_gone(stream);
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

Generation::Generation(asio::any_io_executor executor, const Context& context)
    : context_(context), mailbox_(std::make_shared<Mailbox>(executor)) {}

Generation::~Generation() { abort_all(); }

void Generation::abort(size_t choice) {
  if (!choices_[choice].is_ended) context_.gateway->abort(choices_[choice].request_id);
}

void Generation::abort_all() {
  for (size_t choice = 0; choice < choices_.size(); ++choice) abort(choice);
}

bool Generation::is_ended() const {
  return std::all_of(choices_.begin(), choices_.end(), [](const Choice& choice) { return choice.is_ended; });
}

int64_t Generation::completion_tokens() const {
  int64_t count = 0;
  for (const Choice& choice : choices_) count += static_cast<int64_t>(choice.output_ids.size());
  return count;
}

int64_t Generation::prompt_tokens() const {
  int64_t count = 0;
  for (const Choice& choice : choices_) count += choice.prompt_tokens;
  return count;
}

int64_t Generation::cached_tokens() const {
  int64_t count = 0;
  for (const Choice& choice : choices_) count += choice.cached_tokens;
  return count;
}

Status Generation::submit(ChoiceStart start) {
  const size_t index = choices_.size();
  const auto deliver = [mailbox = mailbox_, index](const TokenEvent& event) {
    asio::post(mailbox->arrived.get_executor(), [mailbox, index, event] {
      mailbox->events.push_back({index, event});
      // An expiry in the past also ends a wait that starts later, so no arrival is ever missed.
      mailbox->arrived.expires_at(asio::steady_timer::time_point::min());
    });
  };
  Choice choice{.request_id = start.request_id,
                .options = start.options,
                .prompt_tokens = start.fork_of.empty() ? static_cast<int64_t>(start.prompt_ids.size()) : 0,
                .submitted = std::chrono::steady_clock::now()};
  choice.detokenizer = std::make_unique<IncrementalDetokenizer>(*context_.tokenizer, start.options.skip_special_tokens);
  GIMBAL_RETURN_IF_ERROR(context_.gateway->submit({.request_id = start.request_id,
                                                   .prompt_ids = std::move(start.prompt_ids),
                                                   .sampling = start.options.sampling,
                                                   .wants_log_probability = start.options.wants_log_probability,
                                                   .num_top_logits = start.options.num_top_logits,
                                                   .first_scored = start.options.first_scored,
                                                   .priority = start.options.priority,
                                                   .cache_salt = start.options.cache_salt,
                                                   .deadline = start.options.deadline,
                                                   .fork_of = start.fork_of},
                                                  deliver));
  choices_.push_back(std::move(choice));
  return {};
}

asio::awaitable<void> Generation::wait_for_event(ClientStream& stream, std::chrono::steady_clock::time_point deadline) {
  mailbox_->arrived.expires_at(deadline);
  if (!is_watching_) {
    co_await wait_for_timer(mailbox_->arrived);
    co_return;
  }
  const auto result = co_await (wait_for_timer(mailbox_->arrived) || wait_for_disconnect(stream));
  if (result.index() == 0) co_return;
  if (!std::get<1>(result)) {  // the next request has come early; its bytes hide a later disconnect
    is_watching_ = false;
    co_return;
  }
  is_watching_ = false;
  abort_all();
  for (size_t index = 0; index < choices_.size(); ++index) {
    if (choices_[index].is_ended) continue;
    TokenEvent event;
    event.finish = FinishReason::kAbort;
    mailbox_->events.push_front({index, event});
  }
}

asio::awaitable<std::optional<GenerationPiece>> Generation::next(ClientStream& stream,
                                                                 std::chrono::milliseconds patience) {
  const auto deadline = patience == std::chrono::milliseconds::max() ? asio::steady_timer::time_point::max()
                                                                     : std::chrono::steady_clock::now() + patience;
  while (true) {
    while (mailbox_->events.empty()) {
      if (std::chrono::steady_clock::now() >= deadline) co_return std::nullopt;
      co_await wait_for_event(stream, deadline);
    }
    const Arrival arrival = std::move(mailbox_->events.front());
    mailbox_->events.pop_front();
    if (choices_[arrival.choice].is_ended) continue;  // what came after a stop text or an abort
    co_return take(arrival);
  }
}

asio::awaitable<GenerationPiece> Generation::next(ClientStream& stream) {
  auto piece = co_await next(stream, std::chrono::milliseconds::max());
  co_return std::move(*piece);
}

GenerationPiece Generation::take(const Arrival& arrival) {
  const TokenEvent& event = arrival.event;
  Choice& choice = choices_[arrival.choice];
  GenerationPiece piece{.choice = arrival.choice,
                        .token_id = event.token_id,
                        .is_end_token = event.is_end_token,
                        .log_probability = event.log_probability,
                        .score = event.score,
                        .prompt_scores = event.prompt_scores,
                        .finish = event.finish,
                        .matched_stop_token = event.matched_stop,
                        .error = event.error};
  if (event.token_id) choice.output_ids.push_back(*event.token_id);
  std::string text;
  if (event.token_id && !event.is_end_token) text = choice.detokenizer->append(*event.token_id);
  if (event.finish) text += choice.detokenizer->flush();
  take_text(choice, std::move(text), piece);
  if (piece.finish && !event.finish) context_.gateway->abort(choice.request_id);  // the engine does not know yet
  if (piece.finish || piece.error) choice.is_ended = true;
  count(choice, arrival, piece);
  return piece;
}

void Generation::count(Choice& choice, const Arrival& arrival, const GenerationPiece& piece) {
  const auto now = std::chrono::steady_clock::now();
  const bool is_first = arrival.event.token_id && choice.output_ids.size() == 1;
  if (is_first) choice.cached_tokens = arrival.event.num_cached_tokens;
  if (context_.metrics != nullptr) {
    const auto seconds = [](auto duration) { return std::chrono::duration<double>(duration).count(); };
    if (is_first) {
      context_.metrics->count_first_token(seconds(arrival.event.queued), seconds(now - choice.submitted));
    } else if (arrival.event.token_id) {
      context_.metrics->count_next_token(seconds(now - choice.last_token));
    }
    if (choice.is_ended) {
      context_.metrics->count_end({.prompt_tokens = choice.prompt_tokens,
                                   .cached_tokens = choice.cached_tokens,
                                   .generated_tokens = static_cast<int64_t>(choice.output_ids.size()),
                                   .seconds = seconds(now - choice.submitted),
                                   .is_aborted = piece.finish == FinishReason::kAbort});
    }
  }
  if (arrival.event.token_id) choice.last_token = now;
}

// Puts into the piece what cannot become a stop text any more.
void Generation::take_text(Choice& choice, std::string text, GenerationPiece& piece) {
  choice.withheld += text;
  size_t first = std::string::npos;
  for (const std::string& candidate : choice.options.stop) {
    const size_t found = choice.withheld.find(candidate);
    if (found >= first) continue;
    first = found;
    piece.matched_stop = candidate;
  }
  if (piece.matched_stop) {
    if (choice.options.keeps_stop) first += piece.matched_stop->size();
    piece.text = choice.withheld.substr(0, first);
    piece.finish = FinishReason::kStop;
    piece.matched_stop_token.reset();
    choice.withheld.clear();
    return;
  }
  const size_t keep = piece.finish ? 0 : stop_prefix_size(choice.withheld, choice.options.stop);
  piece.text = choice.withheld.substr(0, choice.withheld.size() - keep);
  choice.withheld.erase(0, choice.withheld.size() - keep);
}

}  // namespace gimbal
