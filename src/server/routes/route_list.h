// The routes of the server, in one list.
#pragma once

#include <span>
#include <string_view>
#include <boost/asio/awaitable.hpp>
#include <boost/beast/http/verb.hpp>

#include "server/exchange.h"

namespace gimbal {

using RouteHandler = boost::asio::awaitable<void> (*)(Exchange&);

struct Route {
  boost::beast::http::verb method;
  std::string_view path;  // ending in '/': a prefix
  RouteHandler handle;
};

std::span<const Route> route_list();

// Finds the route and runs it; unknown paths are 404, wrong methods 405 with Allow. HEAD is GET without body.
boost::asio::awaitable<void> handle_exchange(Exchange& exchange);

boost::asio::awaitable<void> handle_completions(Exchange& exchange);       // POST /v1/completions
boost::asio::awaitable<void> handle_chat_completions(Exchange& exchange);  // POST /v1/chat/completions
boost::asio::awaitable<void> handle_generate(Exchange& exchange);          // POST /generate
boost::asio::awaitable<void> handle_models(Exchange& exchange);            // GET /v1/models
boost::asio::awaitable<void> handle_model(Exchange& exchange);             // GET /v1/models/{id}
boost::asio::awaitable<void> handle_health(Exchange& exchange);            // GET /health
boost::asio::awaitable<void> handle_health_generate(Exchange& exchange);   // GET /health_generate
boost::asio::awaitable<void> handle_server_info(Exchange& exchange);       // GET /server_info

}  // namespace gimbal
