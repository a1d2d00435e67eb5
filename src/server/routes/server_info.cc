// GET /server_info: settings, what was derived from them, and what the engine is doing.
#include "server/routes/route_list.h"

namespace gimbal {

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
                               {"num_used_tokens", state.kv_tokens_used}};
  }
  co_await exchange.send_json(boost::beast::http::status::ok, body);
}

}  // namespace gimbal
