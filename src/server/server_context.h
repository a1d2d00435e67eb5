// ServerContext: what routes need besides their request. Set up once by `serve`, then read-only but for the gateway.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>
#include <boost/asio/thread_pool.hpp>
#include <boost/json/object.hpp>

#include "conversation/chat_template.h"
#include "engine/request_gateway.h"
#include "server/live_generations.h"
#include "server/server_metrics.h"
#include "tokenizer/tokenizer.h"

namespace gimbal {

// Defaults of requests, from generation_config.json where it names them.
struct SamplingDefaults {
  double temperature = 1.0;
  double top_p = 1.0;
  int64_t top_k = 0;
};

// Must outlive the io_context of the server: exchanges that are cut off use it when they end.
struct ServerContext {
  const Tokenizer* tokenizer = nullptr;
  ChatTemplateKind chat_template = ChatTemplateKind::kKimiK2;
  std::string served_model_name;
  int64_t vocab_size = 0;
  int64_t created = 0;  // seconds since 1970, of the start
  SamplingDefaults defaults;
  // Set when the engine is ready; null before and after. The engine outlives the server's last use.
  std::atomic<RequestGateway*> gateway{nullptr};
  std::atomic<bool> is_stopping{false};
  std::atomic<int64_t> context_length{0};  // known with the gateway
  // Keys; empty: none is asked for. Never shown.
  std::string api_key = {};
  std::string admin_key = {};
  std::string cors_origin = {};
  std::optional<std::chrono::milliseconds> request_deadline = {};  // of every answer
  bool streams_increments = false;                                 // /generate sends what is new
  bool has_proven_token = false;                                   // a token has come out since the start
  std::unique_ptr<ServerMetrics> metrics;                          // may be nullptr
  std::vector<RankReport> reports = {};                            // last known, for /metrics
  std::chrono::steady_clock::time_point reports_time = {};
  LiveGenerations live = {};            // for /abort_request; I/O thread only
  boost::json::object info;             // for /server_info; complete before the gateway is set
  boost::asio::thread_pool workers{1};  // long texts are encoded here, not on the I/O thread
};

}  // namespace gimbal
