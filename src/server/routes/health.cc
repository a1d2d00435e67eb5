// GET /health and /ready: ready or not, without work. GET /health_generate: a token really comes out.
#include <chrono>

#include "server/routes/generation_request.h"
#include "server/routes/route_list.h"

namespace gimbal {
namespace {

// Built outside of the coroutines: GCC 12 cannot compile braced lists inside a co_await expression.
boost::json::object status_body(const char* status) { return {{"status", status}}; }

std::string why_not_ready(const EngineState& state) {
  return state.is_stuck ? "The engine has work but has made no progress (--soft-watchdog-timeout)."
                        : "The engine has failed; see the server's log.";
}

}  // namespace

boost::asio::awaitable<void> handle_health(Exchange& exchange) {
  ServerContext& server = exchange.server();
  RequestGateway* gateway = server.gateway;
  if (gateway == nullptr || server.is_stopping) co_return co_await exchange.send_error(not_ready(server));
  const EngineState state = gateway->state();
  if (state.has_failed) co_return co_await exchange.send_error(Error::unavailable(state.failure));
  if (!state.is_ready) co_return co_await exchange.send_error(Error::unavailable(why_not_ready(state)));
  co_await exchange.send_json(boost::beast::http::status::ok, status_body("ready"));
}

boost::asio::awaitable<void> handle_health_generate(Exchange& exchange) {
  GenerationStart start{.max_tokens = 1, .default_max_tokens = 1};
  start.prompts = {{0}};
  start.options.sampling.temperature = 0;
  start.options.sampling.ignore_eos = true;
  start.options.priority = 1000000;  // says whether tokens come, not how long the queue is
  start.options.deadline = std::chrono::seconds(20);
  auto generation = start_generation(exchange, std::move(start));
  if (!generation) co_return co_await exchange.send_error(generation.error());
  while (true) {
    const GenerationPiece piece = co_await (*generation)->next(exchange.stream());
    if (piece.error) co_return co_await exchange.send_error(Error::unavailable(piece.error->message));
    if (piece.finish == FinishReason::kLength)
      co_return co_await exchange.send_json(boost::beast::http::status::ok, status_body("generating"));
    if (piece.finish)
      co_return co_await exchange.send_error(Error::unavailable("The request for one token was aborted."));
  }
}

}  // namespace gimbal
