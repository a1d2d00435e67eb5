// GET /health: ready or not, without work. GET /health_generate: a token really comes out.
#include "server/routes/generation_request.h"
#include "server/routes/route_list.h"

namespace gimbal {
namespace {

// Built outside of the coroutines: GCC 12 cannot compile braced lists inside a co_await expression.
boost::json::object status_body(const char* status) { return {{"status", status}}; }

}  // namespace

boost::asio::awaitable<void> handle_health(Exchange& exchange) {
  ServerContext& server = exchange.server();
  RequestGateway* gateway = server.gateway;
  if (gateway == nullptr || server.is_stopping) co_return co_await exchange.send_error(not_ready(server));
  if (!gateway->state().is_ready) {
    co_return co_await exchange.send_error(Error::unavailable("The engine has failed; see the server's log."));
  }
  co_await exchange.send_json(boost::beast::http::status::ok, status_body("ready"));
}

boost::asio::awaitable<void> handle_health_generate(Exchange& exchange) {
  GenerationOptions options;
  options.sampling.temperature = 0;
  options.sampling.ignore_eos = true;
  auto generation = start_generation(exchange, {.prompt_ids = {0},
                                                .options = std::move(options),
                                                .max_tokens = 1,
                                                .default_max_tokens = 1,
                                                .request_id = exchange.request_id()});
  if (!generation) co_return co_await exchange.send_error(generation.error());
  while (true) {
    const GenerationPiece piece = co_await (*generation)->next(exchange.stream().socket());
    if (piece.error) co_return co_await exchange.send_error(*piece.error);
    if (piece.finish == FinishReason::kLength)
      co_return co_await exchange.send_json(boost::beast::http::status::ok, status_body("generating"));
    if (piece.finish)
      co_return co_await exchange.send_error(Error::unavailable("The request for one token was aborted."));
  }
}

}  // namespace gimbal
