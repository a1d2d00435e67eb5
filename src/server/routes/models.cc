// GET /v1/models and /v1/models/{id}.
#include <fmt/format.h>

#include <boost/json/array.hpp>

#include "server/routes/route_list.h"

namespace gimbal {
namespace {

boost::json::object model_entry(const ServerContext& server) {
  const int64_t context_length = server.context_length;
  return {
      {"id", server.served_model_name},   {"object", "model"}, {"created", server.created},      {"owned_by", "gimbal"},
      {"root", server.served_model_name}, {"parent", nullptr}, {"max_model_len", context_length}};
}

boost::json::object model_list(const ServerContext& server) {
  return {{"object", "list"}, {"data", boost::json::array{model_entry(server)}}};
}

HttpError unknown_model(const std::string& name, const ServerContext& server) {
  return {.status = boost::beast::http::status::not_found,
          .type = "invalid_request_error",
          .code = "model_not_found",
          .message = fmt::format("model: '{}' is not served here; this server has '{}'.", name.substr(0, 200),
                                 server.served_model_name),
          .parameter = "model"};
}

}  // namespace

boost::asio::awaitable<void> handle_models(Exchange& exchange) {
  co_await exchange.send_json(boost::beast::http::status::ok, model_list(exchange.server()));
}

boost::asio::awaitable<void> handle_model(Exchange& exchange) {
  const std::string name = exchange.path().substr(std::string_view("/v1/models/").size());
  if (name == exchange.server().served_model_name) {
    co_return co_await exchange.send_json(boost::beast::http::status::ok, model_entry(exchange.server()));
  }
  co_await exchange.send_error(unknown_model(name, exchange.server()));
}

}  // namespace gimbal
