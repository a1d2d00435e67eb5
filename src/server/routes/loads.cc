// GET /v1/loads: load of every DP group, for routers.
#include <algorithm>
#include <chrono>
#include <boost/json/array.hpp>

#include "server/routes/generation_request.h"
#include "server/routes/route_list.h"

namespace gimbal {
namespace {

boost::json::object load_of(size_t group, const EngineState& state) {
  const GroupLoad& load = state.groups[group];
  const int64_t pages = load.pages_used + load.pages_cached + load.pages_free;
  const int64_t max_running = state.max_running / static_cast<int64_t>(state.groups.size());
  boost::json::object object;
  object["dp_rank"] = group;
  object["num_running_reqs"] = load.num_running;
  object["num_waiting_reqs"] = group == 0 ? state.num_queued : 0;  // the queue is before the groups
  object["num_paused_reqs"] = load.num_paused;
  object["num_used_tokens"] = load.pages_used * state.page_size;
  object["num_total_tokens"] = (load.pages_used + load.pages_cached) * state.page_size;
  object["max_total_num_tokens"] = pages * state.page_size;
  object["max_running_requests"] = max_running;
  object["token_usage"] = static_cast<double>(load.pages_used) / static_cast<double>(std::max<int64_t>(pages, 1));
  object["utilization"] =
      static_cast<double>(load.num_running) / static_cast<double>(std::max<int64_t>(max_running, 1));
  return object;
}

boost::json::object loads_body(const ServerContext& server, const EngineState& state) {
  boost::json::array loads;
  for (size_t group = 0; group < state.groups.size(); ++group) loads.push_back(load_of(group, state));
  boost::json::object body;
  body["timestamp"] = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  if (const auto* version = server.info.if_contains("version")) body["version"] = *version;
  body["accelerator"] = "cpu";
  body["loads"] = std::move(loads);
  return body;
}

}  // namespace

boost::asio::awaitable<void> handle_loads(Exchange& exchange) {
  RequestGateway* gateway = exchange.server().gateway;
  if (gateway == nullptr) co_return co_await exchange.send_error(not_ready(exchange.server()));
  const EngineState state = gateway->state();
  co_await exchange.send_json(boost::beast::http::status::ok, loads_body(exchange.server(), state));
}

}  // namespace gimbal
