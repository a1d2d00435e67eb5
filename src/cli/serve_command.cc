#include "cli/serve_command.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <thread>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json/array.hpp>

#include "base/byte_size.h"
#include "base/file_text.h"
#include "base/json_reading.h"
#include "base/log.h"
#include "cli/command_error.h"
#include "cli/command_line.h"
#include "cli/loaded_tokenizer.h"
#include "cli/model_command.h"
#include "engine/engine.h"
#include "engine/execution_plan.h"
#include "server/http_server.h"
#include "server/service_notifier.h"
#include "settings/settings_table.h"

namespace gimbal {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;

json::object settings_json(const Settings& settings) {
  json::object object;
  for (const Setting& setting : settings_table()) {
    if ((setting.commands & kServe) == 0 || setting.flag.ends_with("api-key")) continue;  // never shown
    std::string name(setting.flag.substr(2));
    std::replace(name.begin(), name.end(), '-', '_');
    std::visit([&](const auto member) { object[name] = settings.*member; }, setting.member);
  }
  return object;
}

std::string served_name(const Settings& settings) {
  if (!settings.served_model_name.empty()) return settings.served_model_name;
  std::filesystem::path path = std::filesystem::path(settings.model_path).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.has_filename() && path.filename() != "." ? path.filename().string() : settings.model_path;
}

// temperature, top_p and top_k of generation_config.json are the defaults of requests.
Result<SamplingDefaults> read_sampling_defaults(const std::string& model_path, std::vector<std::string>& notes) {
  SamplingDefaults defaults;
  const std::filesystem::path path = std::filesystem::path(model_path) / "generation_config.json";
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return defaults;
  GIMBAL_ASSIGN_OR_RETURN(const std::string text, read_file_text(path));
  GIMBAL_ASSIGN_OR_RETURN(const json::value document, parse_json(text, path.string()));
  const auto take = [&](const char* key, double least, double most, auto& target) -> Status {
    const json::value* value = document.is_object() ? document.get_object().if_contains(key) : nullptr;
    if (value == nullptr || value->is_null()) return {};
    const double number = value->is_double()  ? value->get_double()
                          : value->is_int64() ? static_cast<double>(value->get_int64())
                                              : least - 1;
    if (!(number >= least && number <= most))
      return fail(
          Error::invalid(fmt::format("{}: {} must be a number from {} to {}.", path.string(), key, least, most)));
    target = static_cast<std::remove_reference_t<decltype(target)>>(number);
    notes.push_back(fmt::format("default {} of requests is {} (generation_config.json)", key, number));
    return {};
  };
  GIMBAL_RETURN_IF_ERROR(take("temperature", 0, 2, defaults.temperature));
  GIMBAL_RETURN_IF_ERROR(take("top_p", 1e-9, 1, defaults.top_p));
  GIMBAL_RETURN_IF_ERROR(take("top_k", 0, 1e9, defaults.top_k));
  return defaults;
}

// A key, or the first line of @FILE.
Result<std::string> read_key(const std::string& value, const char* flag) {
  if (!value.starts_with('@')) return value;
  GIMBAL_ASSIGN_OR_RETURN(const std::string text, read_file_text(value.substr(1)));
  const std::string key = text.substr(0, text.find_first_of("\r\n"));
  if (key.empty())
    return fail(Error::invalid(
        fmt::format("{}: the file {} begins with an empty line; the key must stand there.", flag, value.substr(1)),
        flag));
  return key;
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

// One run of the command: the I/O thread is the caller's, the engine is loaded on a thread of its own.
class ServeRun {
 public:
  ServeRun(const Settings& settings, const ModelConfig& config, MpiSession* mpi)
      : settings_(settings), config_(config), mpi_(mpi), signals_(io_, SIGTERM, SIGINT) {}

  Status run() {
    GIMBAL_RETURN_IF_ERROR(prepare());
    const ServerLimits limits{.max_body_bytes = settings_.max_body_bytes,
                              .max_connections = settings_.max_connections,
                              .idle_timeout = milliseconds_of(settings_.idle_timeout_s),
                              .request_timeout = milliseconds_of(settings_.request_timeout_s)};
    GIMBAL_ASSIGN_OR_RETURN(
        server_, HttpServer::bind(io_, context_, limits, settings_.host, static_cast<uint16_t>(settings_.port)));
    if (!settings_.ssl_certfile.empty())
      GIMBAL_RETURN_IF_ERROR(server_->use_tls(settings_.ssl_certfile, settings_.ssl_keyfile));
    spdlog::info("listening on {}, loading {}", server_->url(), settings_.model_path);
    server_->start();
    wait_for_signal();
    asio::co_spawn(io_, watch(), asio::detached);
    std::thread loader([this] { load(); });
    io_.run();
    if (!is_load_over_) {  // a signal came first; loading only reads, so nothing is lost by leaving it
      spdlog::info("stopped while loading");
      std::_Exit(0);
    }
    loader.join();
    context_.gateway = nullptr;
    if (is_stuck_) {  // a rank's thread may never come back: there is nothing to join
      spdlog::error("{}", failure_->message);
      std::_Exit(exit_code(failure_->kind));
    }
    if (engine_) engine_->stop();
    context_.workers.join();  // nothing is sent to the I/O thread any more
    if (failure_) return fail(*failure_);
    spdlog::info("stopped");
    return {};
  }

 private:
  // Everything that can be known without weights.
  Status prepare() {
    if (settings_.ssl_certfile.empty() != settings_.ssl_keyfile.empty())
      return fail(Error::invalid("--ssl-certfile and --ssl-keyfile go together.", "--ssl-certfile"));
    GIMBAL_ASSIGN_OR_RETURN(context_.api_key, read_key(settings_.api_key, "--api-key"));
    GIMBAL_ASSIGN_OR_RETURN(context_.admin_key, read_key(settings_.admin_api_key, "--admin-api-key"));
    context_.cors_origin = settings_.cors_origin;
    context_.streams_increments = settings_.incremental_streaming_output;
    if (settings_.request_deadline_s > 0) context_.request_deadline = milliseconds_of(settings_.request_deadline_s);
    GIMBAL_RETURN_IF_ERROR(check_requested_layout(settings_, config_, rank_processes(mpi_)));
    GIMBAL_ASSIGN_OR_RETURN(Tokenizer tokenizer, load_tokenizer(settings_, config_, notes_));
    tokenizer_.emplace(std::move(tokenizer));
    add_end_tokens(*tokenizer_, config_, notes_);
    GIMBAL_ASSIGN_OR_RETURN(context_.chat_template,
                            parse_chat_template(settings_.chat_template, config_.has_vision_part));
    if (settings_.chat_template == "auto")
      notes_.push_back(fmt::format("chat template: {} (from the model type)", name_of(context_.chat_template)));
    GIMBAL_ASSIGN_OR_RETURN(context_.defaults, read_sampling_defaults(settings_.model_path, notes_));
    context_.tokenizer = &*tokenizer_;
    context_.served_model_name = served_name(settings_);
    context_.metrics = std::make_unique<ServerMetrics>(context_.served_model_name);
    context_.vocab_size = config_.vocab_size;
    context_.created =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
    return {};
  }

  // Looks after the engine twice a second, and tells the service manager.
  asio::awaitable<void> watch() {
    asio::steady_timer timer(io_);
    auto last_progress = std::chrono::steady_clock::now();
    const auto interval = notifier_.watchdog_interval();
    const auto pause = std::min<std::chrono::microseconds>(std::chrono::milliseconds(500),
                                                           interval ? *interval / 3 : std::chrono::seconds(1));
    while (true) {
      timer.expires_after(pause);
      co_await timer.async_wait(asio::use_awaitable);
      if (!is_load_over_) {
        notifier_.loading(fmt::format("Loading {}", settings_.model_path), std::chrono::seconds(30));
        notifier_.alive();
        continue;
      }
      RequestGateway* gateway = context_.gateway;
      if (gateway == nullptr) continue;
      const EngineState state = gateway->state();
      if (!state.is_stuck) last_progress = std::chrono::steady_clock::now();
      if (!state.is_stuck && !state.has_failed) notifier_.alive();
      const auto patience =
          milliseconds_of(std::max(0.0, settings_.watchdog_timeout_s - settings_.soft_watchdog_timeout_s));
      is_stuck_ = std::chrono::steady_clock::now() - last_progress > patience;
      if (is_stuck_) {
        engine_->fail_all(
            Error::failed(fmt::format("The engine made no progress for {} s (--watchdog-timeout); the "
                                      "server ends.",
                                      settings_.watchdog_timeout_s)));
      }
      if (!is_stuck_ && !state.has_failed) continue;
      failure_ = Error::failed(is_stuck_ ? gateway->state().failure : state.failure);
      // Health is red and requests have their errors; these go out before the end.
      co_await server_->drain(std::chrono::milliseconds(1000));
      co_return stop_io();
    }
  }

  void load() {
    auto engine = Engine::start(settings_, config_, mpi_);
    asio::post(io_, [this, loaded = std::make_shared<decltype(engine)>(std::move(engine))] {
      take_engine(std::move(*loaded));
    });
  }

  void take_engine(Result<std::unique_ptr<Engine>> engine) {
    is_load_over_ = true;
    if (!engine) {
      failure_ = engine.error();
      return stop_io();
    }
    engine_ = std::move(*engine);
    if (context_.is_stopping) return;
    const EngineDescription& description = engine_->description();
    notes_.insert(notes_.end(), description.notes.begin(), description.notes.end());
    print_notes(notes_);
    context_.context_length = description.context_length;
    context_.info = describe(description);
    context_.metrics->set_facts({.context_length = description.context_length,
                                 .weight_bytes = description.weight_bytes,
                                 .kv_bytes = description.kv_bytes,
                                 .load_seconds = description.load_seconds});
    context_.gateway = &engine_->gateway();
    notifier_.ready(fmt::format("Serving {} in layout {}", context_.served_model_name, description.layout));
    spdlog::info(
        "ready at {}: {} in layout {} ({}), {} of weights, context {} tokens, KV pool {} tokens ({}), {} threads, "
        "loaded in {:.2f} s",
        server_->url(), context_.served_model_name, description.layout, description.ranks,
        format_bytes(description.weight_bytes), description.context_length, description.kv_tokens,
        format_bytes(description.kv_bytes), description.num_threads, description.load_seconds);
  }

  json::object describe(const EngineDescription& description) const {
    json::object info = settings_json(settings_);
    info["version"] = version_text().substr(7, version_text().size() - 8);
    info["model_path"] = settings_.model_path;
    info["tokenizer_path"] = settings_.tokenizer_path.empty() ? settings_.model_path : settings_.tokenizer_path;
    info["chat_template"] = std::string(name_of(context_.chat_template));
    info["context_length"] = description.context_length;
    info["max_total_num_tokens"] = description.kv_tokens * description.num_dp_groups;
    info["max_running_requests"] = description.max_running * description.num_dp_groups;
    info["layout"] = description.layout;
    info["ranks"] = description.ranks;
    info["threads"] = description.num_threads;
    info["weight_bytes"] = description.weight_bytes;
    info["kv_bytes"] = description.kv_bytes;
    info["workspace_bytes"] = description.workspace_bytes;
    info["op_backend"] = description.op_backend;
    info["attention_backend"] = description.attention_backend;
    info["moe_runner_backend"] = description.moe_runner_backend;
    info["moe_a2a_backend"] = description.moe_a2a_backend;
    info["startup_time"] = description.load_seconds;
    json::array notes(settings_.notes.begin(), settings_.notes.end());
    notes.insert(notes.end(), notes_.begin(), notes_.end());
    info["notes"] = std::move(notes);
    return info;
  }

  // The first signal lets running requests finish, the second ends at once.
  void wait_for_signal() {
    signals_.async_wait([this](const boost::system::error_code& error, int signal) {
      if (error) return;
      spdlog::info("signal {}: no new requests, running ones get {} s", signal, settings_.drain_timeout_s);
      context_.is_stopping = true;
      notifier_.stopping();
      signals_.async_wait([](const boost::system::error_code& second_error, int second_signal) {
        if (!second_error) std::_Exit(128 + second_signal);
      });
      asio::co_spawn(io_, drain_and_stop(), asio::detached);
    });
  }

  asio::awaitable<void> drain_and_stop() {
    co_await server_->drain(milliseconds_of(settings_.drain_timeout_s));
    if (engine_) {
      engine_->stop();  // aborts what is left; its answers go out in the moment that follows
      co_await server_->drain(std::chrono::milliseconds(500));
    }
    stop_io();
  }

  void stop_io() {
    server_->close();
    io_.stop();
  }

  const Settings& settings_;
  ModelConfig config_;
  MpiSession* mpi_;  // not owned; nullptr: ranks are threads
  std::optional<Tokenizer> tokenizer_;
  std::vector<std::string> notes_;
  std::unique_ptr<Engine> engine_;
  ServerContext context_;
  // Ends before all that exchanges use: those that were cut off end with it.
  asio::io_context io_{1};
  asio::signal_set signals_;
  std::unique_ptr<HttpServer> server_;
  std::optional<Error> failure_;
  ServiceNotifier notifier_;
  bool is_stuck_ = false;
  bool is_load_over_ = false;  // with an engine or a failure
};

}  // namespace

int run_serve_command(const Settings& settings) {
  return report_status("serve", run_model_command(settings, [&](const ModelConfig& config, MpiSession* mpi) {
                         return ServeRun(settings, config, mpi).run();
                       }));
}

}  // namespace gimbal
