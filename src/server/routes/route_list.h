// The routes of the server, in one list.
#pragma once

#include <span>
#include <string_view>
#include <boost/asio/awaitable.hpp>
#include <boost/beast/http/verb.hpp>

#include "server/exchange.h"

namespace gimbal {

using RouteHandler = boost::asio::awaitable<void> (*)(Exchange&);

// Who may call a route once keys are set. With TLS or without.
enum class RouteAccess {
  kOpen,   // everybody
  kKey,    // --api-key or --admin-api-key
  kAdmin,  // --admin-api-key; --api-key where that is the only one
};

struct Route {
  boost::beast::http::verb method;
  std::string_view path;  // ending in '/': a prefix
  RouteAccess access;
  RouteHandler handle;
  std::string_view summary;  // for /openapi.json
};

std::span<const Route> route_list();

// Finds the route and runs it; unknown paths are 404, wrong methods 405 with Allow. HEAD is GET without body.
boost::asio::awaitable<void> handle_exchange(Exchange& exchange);

// In routes/NAME.cc each.
boost::asio::awaitable<void> handle_completions(Exchange& exchange);
boost::asio::awaitable<void> handle_chat_completions(Exchange& exchange);
boost::asio::awaitable<void> handle_generate(Exchange& exchange);
boost::asio::awaitable<void> handle_tokenize(Exchange& exchange);
boost::asio::awaitable<void> handle_detokenize(Exchange& exchange);
boost::asio::awaitable<void> handle_models(Exchange& exchange);
boost::asio::awaitable<void> handle_model(Exchange& exchange);
boost::asio::awaitable<void> handle_model_info(Exchange& exchange);
boost::asio::awaitable<void> handle_health(Exchange& exchange);
boost::asio::awaitable<void> handle_health_generate(Exchange& exchange);
boost::asio::awaitable<void> handle_server_info(Exchange& exchange);
boost::asio::awaitable<void> handle_loads(Exchange& exchange);
boost::asio::awaitable<void> handle_metrics(Exchange& exchange);
boost::asio::awaitable<void> handle_flush_cache(Exchange& exchange);
boost::asio::awaitable<void> handle_abort_request(Exchange& exchange);
boost::asio::awaitable<void> handle_pause_generation(Exchange& exchange);
boost::asio::awaitable<void> handle_continue_generation(Exchange& exchange);
boost::asio::awaitable<void> handle_openapi(Exchange& exchange);

}  // namespace gimbal
