#include "server/routes/route_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <vector>
#include <boost/beast/core/string.hpp>
#include <openssl/crypto.h>

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

HttpError no_key() {
  return {
      .status = http::status::unauthorized,
      .type = "authentication_error",
      .code = "invalid_api_key",
      .message = "This server needs a key: send the header 'Authorization: Bearer KEY' with a key that may do this."};
}

// Takes the same time for every key of a length.
bool is_same_key(std::string_view given, const std::string& key) {
  return !key.empty() && given.size() == key.size() && CRYPTO_memcmp(given.data(), key.data(), key.size()) == 0;
}

bool may_call(const Exchange& exchange, RouteAccess access) {
  const ServerContext& server = exchange.server();
  if (access == RouteAccess::kOpen || (server.api_key.empty() && server.admin_key.empty())) return true;
  const auto& headers = exchange.request();
  std::string_view given;
  if (const auto found = headers.find(http::field::authorization); found != headers.end()) given = found->value();
  constexpr std::string_view kScheme = "bearer ";
  if (given.size() < kScheme.size() || !boost::beast::iequals(given.substr(0, kScheme.size()), kScheme)) return false;
  given.remove_prefix(kScheme.size());
  if (is_same_key(given, server.admin_key)) return true;
  // Without a key of its own, an area is guarded by the other one.
  const bool is_enough = access == RouteAccess::kKey || server.admin_key.empty();
  return is_enough && is_same_key(given, server.api_key);
}

}  // namespace

std::span<const Route> route_list() {
  using enum RouteAccess;
  using http::verb;
  static constexpr auto kRoutes = std::to_array<Route>({
      {verb::post, "/v1/completions", kKey, handle_completions, "Continue a prompt"},
      {verb::post, "/v1/chat/completions", kKey, handle_chat_completions, "Answer a conversation"},
      {verb::post, "/generate", kKey, handle_generate, "Continue prompts, in SGLang's form"},
      {verb::put, "/generate", kKey, handle_generate, "Continue prompts, in SGLang's form"},
      {verb::post, "/v1/tokenize", kKey, handle_tokenize, "Ids of a text"},
      {verb::post, "/tokenize", kKey, handle_tokenize, "Ids of a text"},
      {verb::post, "/v1/detokenize", kKey, handle_detokenize, "Text of ids"},
      {verb::post, "/detokenize", kKey, handle_detokenize, "Text of ids"},
      {verb::get, "/v1/models", kKey, handle_models, "The served model"},
      {verb::get, "/v1/models/", kKey, handle_model, "One model"},
      {verb::get, "/model_info", kKey, handle_model_info, "Paths of model and tokenizer"},
      {verb::get, "/get_model_info", kKey, handle_model_info, "Paths of model and tokenizer"},
      {verb::get, "/health", kOpen, handle_health, "Alive and able to answer"},
      {verb::get, "/ready", kOpen, handle_health, "Alive and able to answer"},
      {verb::get, "/health_generate", kOpen, handle_health_generate, "A token really comes out"},
      {verb::get, "/server_info", kKey, handle_server_info, "Settings and state"},
      {verb::get, "/get_server_info", kKey, handle_server_info, "Settings and state"},
      {verb::get, "/v1/loads", kKey, handle_loads, "Load of every DP group"},
      {verb::get, "/get_load", kKey, handle_loads, "Load of every DP group"},
      {verb::get, "/metrics", kKey, handle_metrics, "Metrics for Prometheus"},
      {verb::get, "/flush_cache", kAdmin, handle_flush_cache, "Forget the pages of prompts"},
      {verb::post, "/flush_cache", kAdmin, handle_flush_cache, "Forget the pages of prompts"},
      {verb::post, "/abort_request", kAdmin, handle_abort_request, "End requests"},
      {verb::post, "/pause_generation", kAdmin, handle_pause_generation, "Begin no more steps"},
      {verb::post, "/continue_generation", kAdmin, handle_continue_generation, "Go on after a pause"},
      {verb::get, "/openapi.json", kKey, handle_openapi, "This description"},
  });
  return kRoutes;
}

boost::asio::awaitable<void> handle_exchange(Exchange& exchange) {
  const std::string path = exchange.path();
  const http::verb asked = exchange.request().method();
  const http::verb method = asked == http::verb::head ? http::verb::get : asked;
  if (asked == http::verb::options && !exchange.server().cors_origin.empty())
    co_return co_await exchange.send_text(http::status::no_content, {}, "text/plain");
  // Unknown paths and methods tell nothing to those without a key.
  std::vector<std::string> allowed;
  for (const Route& route : route_list()) {
    if (!is_match(route, path)) continue;
    if (route.method == method) {
      if (!may_call(exchange, route.access)) co_return co_await exchange.send_error(no_key());
      co_return co_await route.handle(exchange);
    }
    allowed.emplace_back(http::to_string(route.method));
  }
  if (!may_call(exchange, RouteAccess::kKey)) co_return co_await exchange.send_error(no_key());
  if (!allowed.empty())
    co_return co_await exchange.send_error(wrong_method(exchange, fmt::format("{}", fmt::join(allowed, ", "))));
  co_await exchange.send_error(no_route(path));
}

}  // namespace gimbal
