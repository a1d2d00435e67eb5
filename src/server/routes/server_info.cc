// GET /model_info, and /server_info: settings, what was derived from them, and what the engine is doing.
#include "server/routes/route_list.h"

namespace gimbal {
namespace {

boost::json::object model_info(const ServerContext& server) {
  boost::json::object body;
  for (const char* key : {"model_path", "tokenizer_path"}) {
    if (const auto* value = server.info.if_contains(key)) body[key] = *value;
  }
  body["served_model_name"] = server.served_model_name;
  body["is_generation"] = true;
  body["context_length"] = server.context_length.load();
  body["vocab_size"] = server.vocab_size;
  body["weight_version"] = "default";
  return body;
}

}  // namespace

boost::asio::awaitable<void> handle_model_info(Exchange& exchange) {
  co_await exchange.send_json(boost::beast::http::status::ok, model_info(exchange.server()));
}

boost::asio::awaitable<void> handle_server_info(Exchange& exchange) {
  ServerContext& server = exchange.server();
  RequestGateway* gateway = server.gateway;
  boost::json::object body;
  if (gateway != nullptr) body = server.info;  // complete before the gateway is set
  body["served_model_name"] = server.served_model_name;
  body["status"] = server.is_stopping ? "stopping" : gateway == nullptr ? "loading" : "ready";
  if (gateway != nullptr) {
    const EngineState state = gateway->state();
    body["internal_states"] = {{"is_ready", state.is_ready},
                               {"num_running_reqs", state.num_running},
                               {"num_queue_reqs", state.num_queued},
                               {"num_steps", state.num_steps},
                               {"prompt_tokens", state.prompt_tokens},
                               {"generated_tokens", state.generated_tokens},
                               {"max_total_num_tokens", state.kv_tokens_total},
                               {"num_used_tokens", state.kv_tokens_used},
                               {"is_paused", state.is_paused},
                               {"is_stuck", state.is_stuck},
                               {"num_preemptions", state.scheduler.preemptions}};
  }
  co_await exchange.send_json(boost::beast::http::status::ok, body);
}

}  // namespace gimbal
