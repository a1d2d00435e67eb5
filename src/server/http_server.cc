#include "server/http_server.h"

#include <fmt/format.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>

#include "base/log.h"
#include "server/routes/route_list.h"

namespace gimbal {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::beast::error_code;

HttpError protocol_error(http::status status, std::string code, std::string message) {
  return {.status = status, .type = "invalid_request_error", .code = std::move(code), .message = std::move(message)};
}

// Cancels what the stream is doing when time is up, but leaves it open (a stream's own expiry closes it), so that the
// client can be told.
class ReadDeadline {
 public:
  ReadDeadline(ClientStream& stream, std::chrono::milliseconds patience)
      : timer_(stream.get_executor(), patience), state_(std::make_shared<State>()) {
    timer_.async_wait([&stream, state = state_](const error_code& error) {
      if (error || !state->is_armed) return;
      state->has_passed = true;
      stream.cancel();
    });
  }
  ~ReadDeadline() { state_->is_armed = false; }
  ReadDeadline(const ReadDeadline&) = delete;
  ReadDeadline& operator=(const ReadDeadline&) = delete;
  bool has_passed() const { return state_->has_passed; }

 private:
  struct State {  // outlives the object when its timer has already fired
    bool is_armed = true;
    bool has_passed = false;
  };
  asio::steady_timer timer_;
  std::shared_ptr<State> state_;
};

// What to answer when a request could not be read; nullopt when nobody is there to read it.
std::optional<HttpError> describe_read_error(const error_code& error, bool has_timed_out, const ServerLimits& limits) {
  if (error == http::error::body_limit) {
    return protocol_error(http::status::payload_too_large, "body_too_large",
                          fmt::format("The request body is larger than the limit of {} bytes (--max-body-bytes).",
                                      limits.max_body_bytes));
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return protocol_error(
        http::status::request_header_fields_too_large, "header_too_large",
        fmt::format("The request head is larger than the limit of {} bytes.", limits.max_header_bytes));
  }
  if (has_timed_out) {
    return protocol_error(http::status::request_timeout, "request_timeout",
                          "The request did not arrive in time (--request-timeout-s).");
  }
  if (error.category() == make_error_code(http::error::bad_method).category() && error != http::error::end_of_stream &&
      error != http::error::partial_message) {
    return protocol_error(http::status::bad_request, "malformed_http",
                          fmt::format("The request is not valid HTTP: {}.", error.message()));
  }
  return std::nullopt;
}

// Counts an exchange while it lives, and its answer at the end.
class ActiveExchange {
 public:
  ActiveExchange(ServerMetrics* metrics, const Exchange& exchange) : metrics_(metrics), exchange_(exchange) {
    if (metrics_ == nullptr) return;
    metrics_->count_request();
    metrics_->count_active(1);
  }
  ~ActiveExchange() {
    if (metrics_ == nullptr) return;
    metrics_->count_active(-1);
    if (exchange_.has_started()) metrics_->count_response(static_cast<unsigned>(exchange_.status()));
  }
  ActiveExchange(const ActiveExchange&) = delete;
  ActiveExchange& operator=(const ActiveExchange&) = delete;

 private:
  ServerMetrics* metrics_;
  const Exchange& exchange_;
};

void log_access(const Exchange& exchange, std::chrono::steady_clock::time_point start) {
  const auto ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  spdlog::info("{} {} {} {:.1f} ms, {} prompt + {} new tokens, id {}",
               std::string_view(exchange.request().method_string()), exchange.path().substr(0, 200),
               static_cast<unsigned>(exchange.status()), ms, exchange.prompt_tokens, exchange.completion_tokens,
               exchange.request_id());
}

}  // namespace

HttpServer::HttpServer(asio::io_context& io, ServerContext& server, const ServerLimits& limits)
    : io_(io), server_(server), limits_(limits), acceptor_(io) {}

Result<std::unique_ptr<HttpServer>> HttpServer::bind(asio::io_context& io, ServerContext& server,
                                                     const ServerLimits& limits, const std::string& host,
                                                     uint16_t port) {
  std::unique_ptr<HttpServer> http_server(new HttpServer(io, server, limits));
  GIMBAL_RETURN_IF_ERROR(http_server->listen(host, port));
  return http_server;
}

Status HttpServer::listen(const std::string& host, uint16_t port) {
  error_code error;
  const auto refuse = [&](std::string_view what) {
    const char* advice = error == asio::error::address_in_use
                             ? "Another program listens there: stop it or choose another --port."
                             : "Choose an address of this machine (--host) and a free --port.";
    return fail(Error{
        ErrorKind::kWorkFailed,
        fmt::format("The server cannot listen on {} port {}: {} ({}). {}", host, port, what, error.message(), advice),
        "--port"});
  };
  const asio::ip::address address =
      host == "localhost" ? asio::ip::make_address("127.0.0.1") : asio::ip::make_address(host, error);
  if (error) return refuse("not an IP address");
  const tcp::endpoint endpoint(address, port);
  acceptor_.open(endpoint.protocol(), error);
  if (error) return refuse("no socket");
  acceptor_.set_option(asio::socket_base::reuse_address(true),
                       error);  // connections of a server that just ended do not block the port
  acceptor_.bind(endpoint, error);
  if (error) return refuse("bind failed");
  acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return refuse("listen failed");
  host_ = host;
  port_ = acceptor_.local_endpoint().port();
  return {};
}

std::string HttpServer::url() const {
  const bool is_ipv6 = host_.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}:{}", tls_ ? "https" : "http", is_ipv6 ? "[" : "", host_, is_ipv6 ? "]" : "", port_);
}

Status HttpServer::use_tls(const std::string& certificate_file, const std::string& key_file) {
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  error_code error;
  context->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                       asio::ssl::context::no_tlsv1_1);
  context->use_certificate_chain_file(certificate_file, error);
  if (error) {
    return fail(
        Error::invalid(fmt::format("--ssl-certfile {} cannot be used: {}. A PEM file with the certificate, then "
                                   "those that signed it, is needed.",
                                   certificate_file, error.message()),
                       "--ssl-certfile"));
  }
  context->use_private_key_file(key_file, asio::ssl::context::pem, error);
  if (error) {
    return fail(Error::invalid(fmt::format("--ssl-keyfile {} cannot be used: {}. The certificate's private key as PEM, "
                                           "without a pass phrase, is needed.",
                                           key_file, error.message()),
                               "--ssl-keyfile"));
  }
  tls_ = std::move(context);
  return {};
}

void HttpServer::start() { asio::co_spawn(io_, accept_connections(), asio::detached); }

asio::awaitable<void> HttpServer::accept_connections() {
  asio::steady_timer pause(io_);
  while (acceptor_.is_open()) {
    auto [error, socket] = co_await acceptor_.async_accept(asio::as_tuple(asio::use_awaitable));
    if (error == asio::error::operation_aborted || !acceptor_.is_open()) co_return;
    if (error) {  // out of file descriptors, say: let others finish before trying again
      spdlog::warn("a connection could not be accepted: {}", error.message());
      pause.expires_after(std::chrono::milliseconds(100));
      co_await pause.async_wait(asio::as_tuple(asio::use_awaitable));
      continue;
    }
    error_code ignored;
    socket.set_option(tcp::no_delay(true), ignored);
    if (static_cast<int64_t>(connections_.size()) >= limits_.max_connections) {
      asio::co_spawn(io_, refuse_connection(std::move(socket)), asio::detached);
      continue;
    }
    connections_.push_back({.stream = ClientStream(std::move(socket), tls_.get())});
    asio::co_spawn(io_, run_connection(std::prev(connections_.end())), asio::detached);
  }
}

asio::awaitable<void> HttpServer::refuse_connection(tcp::socket socket) {
  boost::beast::tcp_stream stream(std::move(socket));
  stream.expires_after(std::chrono::seconds(1));
  const std::string answer =
      "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Type: "
      "application/json\r\nContent-Length: 129\r\n\r\n"
      R"({"error":{"message":"Too many connections are open (--max-connections).","type":"service_unavailable","param":null,"code":"busy"}})";
  co_await asio::async_write(stream, asio::buffer(answer), asio::as_tuple(asio::use_awaitable));
  error_code ignored;
  stream.socket().shutdown(tcp::socket::shutdown_both, ignored);
}

asio::awaitable<void> HttpServer::run_connection(ConnectionPlace place) {
  try {
    if (co_await shake_hands(*place)) co_await serve_requests(*place);
  } catch (const boost::system::system_error& error) {
    spdlog::debug("connection ended: {}", error.code().message());  // the client went away
  } catch (const std::exception& exception) {
    spdlog::error("connection ended by an internal error: {}", exception.what());
  }
  error_code ignored;
  place->stream.socket().shutdown(tcp::socket::shutdown_both, ignored);
  connections_.erase(place);
}

asio::awaitable<bool> HttpServer::shake_hands(Connection& connection) {
  if (!connection.stream.is_tls()) co_return true;
  connection.stream.expires_after(limits_.request_timeout);
  const auto [error] = co_await connection.stream.handshake(asio::as_tuple(asio::use_awaitable));
  if (error) spdlog::debug("no TLS connection: {}", error.message());
  co_return !error;
}

asio::awaitable<void> HttpServer::serve_requests(Connection& connection) {
  boost::beast::flat_buffer buffer(static_cast<size_t>(limits_.max_header_bytes + limits_.max_body_bytes + 65536));
  while (!is_draining_) {
    if (buffer.size() == 0) {  // idle: wait for the first bytes of a request
      connection.stream.expires_after(limits_.idle_timeout);
      const auto [error, count] =
          co_await connection.stream.async_read_some(buffer.prepare(4096), asio::as_tuple(asio::use_awaitable));
      if (error) co_return;
      buffer.commit(count);
    }
    connection.is_busy = true;
    const bool keeps_alive = co_await serve_one(connection, buffer);
    connection.is_busy = false;
    if (!keeps_alive) co_return;
  }
}

asio::awaitable<bool> HttpServer::serve_one(Connection& connection, boost::beast::flat_buffer& buffer) {
  const auto start = std::chrono::steady_clock::now();
  http::request_parser<http::string_body> parser;
  parser.header_limit(static_cast<uint32_t>(limits_.max_header_bytes));
  parser.body_limit(static_cast<uint64_t>(limits_.max_body_bytes));
  connection.stream.expires_never();
  std::optional<ReadDeadline> deadline(std::in_place, connection.stream, limits_.request_timeout);
  error_code error;
  co_await http::async_read_header(connection.stream, buffer, parser, asio::redirect_error(asio::use_awaitable, error));
  std::optional<HttpError> fault = error ? describe_read_error(error, deadline->has_passed(), limits_) : std::nullopt;
  if (error && !fault) co_return false;
  if (!error) {
    if (const auto expect = parser.get().find(http::field::expect); expect != parser.get().end()) {
      if (!boost::beast::iequals(expect->value(), "100-continue")) {
        fault = protocol_error(http::status::expectation_failed, "unknown_expectation",
                               "Only the expectation 100-continue is known.");
      } else if (!parser.is_done() && buffer.size() == 0) {
        constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
        co_await asio::async_write(connection.stream, asio::buffer(kContinue), asio::use_awaitable);
      }
    }
  }
  if (!fault) {
    co_await http::async_read(connection.stream, buffer, parser, asio::redirect_error(asio::use_awaitable, error));
    if (error) fault = describe_read_error(error, deadline->has_passed(), limits_);
    if (error && !fault) co_return false;
  }
  deadline.reset();
  Exchange exchange(server_, connection.stream, parser.release(), limits_);
  if (fault || is_draining_) exchange.close_after();
  const ActiveExchange active(server_.metrics.get(), exchange);
  std::optional<std::string> internal_error;
  try {
    if (fault) {
      co_await exchange.send_error(*fault);
    } else {
      co_await handle_exchange(exchange);
    }
  } catch (const boost::system::system_error&) {
    log_access(exchange, start);
    throw;  // the client is gone
  } catch (const std::exception& exception) {
    internal_error = exception.what();
  }
  if (internal_error) {
    spdlog::error("request {} failed: {}", exchange.request_id(), *internal_error);
    exchange.close_after();
    if (!exchange.has_started())
      co_await exchange.send_error(Error::failed("The server made an error; see its log for the request id."));
  }
  log_access(exchange, start);
  co_return exchange.keeps_alive();
}

int64_t HttpServer::num_busy() const {
  int64_t count = 0;
  for (const Connection& connection : connections_) count += connection.is_busy ? 1 : 0;
  return count;
}

asio::awaitable<void> HttpServer::drain(std::chrono::milliseconds patience) {
  is_draining_ = true;
  error_code ignored;
  acceptor_.close(ignored);
  for (Connection& connection : connections_) {
    if (!connection.is_busy) connection.stream.cancel();
  }
  const auto deadline = std::chrono::steady_clock::now() + patience;
  asio::steady_timer timer(io_);
  while (num_busy() > 0 && std::chrono::steady_clock::now() < deadline) {
    timer.expires_after(std::chrono::milliseconds(20));
    co_await timer.async_wait(asio::use_awaitable);
  }
}

void HttpServer::close() {
  for (Connection& connection : connections_) connection.stream.cancel();
}

}  // namespace gimbal
