#include "server/routes/route_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <vector>

namespace gimbal {
namespace {

namespace http = boost::beast::http;

bool is_match(const Route& route, std::string_view path) {
  if (!route.path.ends_with('/')) return route.path == path;
  return path.starts_with(route.path) && path.size() > route.path.size();
}

HttpError wrong_method(const Exchange& exchange, const std::string& allowed) {
  return {.status = http::status::method_not_allowed,
          .type = "invalid_request_error",
          .code = "method_not_allowed",
          .message = fmt::format("{} takes {}, not {}.", exchange.path(), allowed,
                                 std::string_view(exchange.request().method_string())),
          .parameter = allowed};
}

HttpError no_route(const std::string& path) {
  return {.status = http::status::not_found,
          .type = "invalid_request_error",
          .code = "not_found",
          .message = fmt::format("There is no route {}.", path.substr(0, 200))};
}

}  // namespace

std::span<const Route> route_list() {
  static constexpr std::array<Route, 10> kRoutes = {{
      {http::verb::post, "/v1/completions", handle_completions},
      {http::verb::post, "/v1/chat/completions", handle_chat_completions},
      {http::verb::post, "/generate", handle_generate},
      {http::verb::put, "/generate", handle_generate},
      {http::verb::get, "/v1/models", handle_models},
      {http::verb::get, "/v1/models/", handle_model},
      {http::verb::get, "/health", handle_health},
      {http::verb::get, "/health_generate", handle_health_generate},
      {http::verb::get, "/server_info", handle_server_info},
      {http::verb::get, "/get_server_info", handle_server_info},
  }};
  return kRoutes;
}

boost::asio::awaitable<void> handle_exchange(Exchange& exchange) {
  const std::string path = exchange.path();
  const http::verb asked = exchange.request().method();
  const http::verb method = asked == http::verb::head ? http::verb::get : asked;
  std::vector<std::string> allowed;
  for (const Route& route : route_list()) {
    if (!is_match(route, path)) continue;
    if (route.method == method) co_return co_await route.handle(exchange);
    allowed.emplace_back(http::to_string(route.method));
  }
  if (!allowed.empty())
    co_return co_await exchange.send_error(wrong_method(exchange, fmt::format("{}", fmt::join(allowed, ", "))));
  co_await exchange.send_error(no_route(path));
}

}  // namespace gimbal
