// Routes that change what the engine does: /flush_cache, /abort_request, /pause_generation, /continue_generation.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <memory>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "server/routes/generation_request.h"
#include "server/routes/route_list.h"

namespace gimbal {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

boost::json::object success(std::string message) {
  boost::json::object body;
  body["success"] = true;
  body["message"] = std::move(message);
  return body;
}

HttpError conflict(std::string message) {
  return {.status = http::status::conflict,
          .type = "invalid_request_error",
          .code = "conflict",
          .message = std::move(message)};
}

// An answer of the engine's thread, awaited on the I/O thread.
template <typename T>
class EngineAnswer {
 public:
  explicit EngineAnswer(asio::any_io_executor executor) : state_(std::make_shared<State>(executor)) {}
  // To be called once, from any thread.
  std::function<void(T)> sink() {
    return [state = state_](T value) {
      asio::post(state->arrived.get_executor(), [state, value = std::move(value)]() mutable {
        state->value = std::move(value);
        state->arrived.expires_at(asio::steady_timer::time_point::min());
      });
    };
  }
  // nullopt after `patience`.
  asio::awaitable<std::optional<T>> wait(std::chrono::milliseconds patience) {
    state_->arrived.expires_after(patience);
    if (!state_->value) co_await state_->arrived.async_wait(asio::as_tuple(asio::use_awaitable));
    co_return std::move(state_->value);
  }

 private:
  struct State {
    explicit State(asio::any_io_executor executor) : arrived(executor) {}
    std::optional<T> value;
    asio::steady_timer arrived;
  };
  std::shared_ptr<State> state_;
};

constexpr std::chrono::milliseconds kEnginePatience(30000);

Result<std::chrono::milliseconds> read_timeout(const Exchange& exchange) {
  const std::string text = exchange.query("timeout").value_or("0");
  double seconds = -1;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (code != std::errc() || end != text.data() + text.size() || !(seconds >= 0 && seconds <= 3600))
    return fail(Error::invalid("timeout: must be seconds from 0 to 3600.", "timeout"));
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

}  // namespace

// Waits up to ?timeout= seconds for running requests, then says no instead of doing half.
asio::awaitable<void> handle_flush_cache(Exchange& exchange) {
  const auto timeout = read_timeout(exchange);
  if (!timeout) co_return co_await exchange.send_error(timeout.error());
  const auto deadline = std::chrono::steady_clock::now() + *timeout;
  asio::steady_timer pause(exchange.stream().get_executor());
  while (true) {
    RequestGateway* gateway = exchange.server().gateway;
    if (gateway == nullptr) co_return co_await exchange.send_error(not_ready(exchange.server()));
    int64_t pages = 0;
    for (const GroupLoad& group : gateway->state().groups) pages += group.pages_cached;
    EngineAnswer<bool> answer(exchange.stream().get_executor());
    gateway->flush_cache(answer.sink());
    const std::optional<bool> is_flushed = co_await answer.wait(kEnginePatience);
    if (is_flushed == true) {
      co_return co_await exchange.send_json(
          http::status::ok, success(fmt::format("The prefix cache is empty; {} pages were freed.", pages)));
    }
    if (!is_flushed || std::chrono::steady_clock::now() >= deadline) {
      co_return co_await exchange.send_error(
          conflict("Requests are running, so the prefix cache was not flushed. Try again when the server is idle, or "
                   "wait with ?timeout=SECONDS."));
    }
    pause.expires_after(std::chrono::milliseconds(20));
    co_await pause.async_wait(asio::use_awaitable);
  }
}

asio::awaitable<void> handle_abort_request(Exchange& exchange) {
  ServerContext& server = exchange.server();
  const auto body = read_body(exchange.request());
  if (!body) co_return co_await exchange.send_error(body.error());
  FieldReader fields(*body);
  const std::string rid = fields.text("rid").value_or("");
  const bool is_all = fields.boolean("abort_all", false);
  constexpr std::string_view kIgnored[] = {"finished_reason", "abort_message"};
  fields.ignore(kIgnored);
  fields.refuse_unknown();
  if (rid.empty() && !is_all) fields.refuse("rid", "is missing; name a request, or send abort_all true");
  if (fields.error()) co_return co_await exchange.send_error(*fields.error());
  RequestGateway* gateway = server.gateway;
  if (gateway == nullptr) co_return co_await exchange.send_error(not_ready(server));
  if (is_all) {
    gateway->abort_all();
    co_return co_await exchange.send_json(http::status::ok, success("All requests are being aborted."));
  }
  const int64_t count = server.live.abort(rid);
  co_await exchange.send_json(http::status::ok, success(fmt::format("{} requests are being aborted.", count)));
}

asio::awaitable<void> handle_pause_generation(Exchange& exchange) {
  ServerContext& server = exchange.server();
  boost::json::object body;
  if (!exchange.request().body().empty()) {
    auto read = read_body(exchange.request());
    if (!read) co_return co_await exchange.send_error(read.error());
    body = std::move(*read);
  }
  FieldReader fields(body);
  const std::string mode = fields.text("mode").value_or("abort");
  fields.refuse_unknown();
  if (mode != "abort" && mode != "retract" && mode != "in_place")
    fields.refuse("mode", "must be abort, retract or in_place");
  if (fields.error()) co_return co_await exchange.send_error(*fields.error());
  RequestGateway* gateway = server.gateway;
  if (gateway == nullptr) co_return co_await exchange.send_error(not_ready(server));
  EngineAnswer<bool> answer(exchange.stream().get_executor());
  const PauseMode kind = mode == "abort"     ? PauseMode::kAbort
                         : mode == "retract" ? PauseMode::kRetract
                                             : PauseMode::kInPlace;
  gateway->pause(kind, [sink = answer.sink()] { sink(true); });
  const std::optional<bool> is_paused = co_await answer.wait(kEnginePatience);
  if (!is_paused) co_return co_await exchange.send_error(Error::unavailable("The engine did not come to a pause."));
  co_await exchange.send_json(http::status::ok, success("Generation is paused."));
}

asio::awaitable<void> handle_continue_generation(Exchange& exchange) {
  RequestGateway* gateway = exchange.server().gateway;
  if (gateway == nullptr) co_return co_await exchange.send_error(not_ready(exchange.server()));
  gateway->continue_generation();
  co_await exchange.send_json(http::status::ok, success("Generation goes on."));
}

asio::awaitable<void> handle_metrics(Exchange& exchange) {
  ServerContext& server = exchange.server();
  RequestGateway* gateway = server.gateway;
  const auto now = std::chrono::steady_clock::now();
  if (gateway != nullptr && now - server.reports_time >= std::chrono::seconds(1)) {
    server.reports_time = now;
    EngineAnswer<std::vector<RankReport>> answer(exchange.stream().get_executor());
    gateway->report(answer.sink());
    // A long step must not hold a scrape: then the components are those of the last one.
    auto reports = co_await answer.wait(std::chrono::milliseconds(200));
    if (reports && !reports->empty()) server.reports = std::move(*reports);
  }
  if (server.metrics == nullptr) co_return co_await exchange.send_error(not_ready(server));
  const EngineState state = gateway != nullptr ? gateway->state() : EngineState{};
  co_await exchange.send_text(http::status::ok, server.metrics->text(state, server.reports),
                              "text/plain; version=0.0.4; charset=utf-8");
}

}  // namespace gimbal
