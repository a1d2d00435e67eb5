// Exchange: one request and the way to answer it. Given to a route, used by it alone, on the I/O thread.
#pragma once

#include <optional>
#include <string>
#include <boost/asio/awaitable.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/json/value.hpp>

#include "server/client_stream.h"
#include "server/error_body.h"
#include "server/server_context.h"
#include "server/server_limits.h"

namespace gimbal {

using HttpRequest = boost::beast::http::request<boost::beast::http::string_body>;

class Exchange {
 public:
  Exchange(ServerContext& server, ClientStream& stream, HttpRequest request, const ServerLimits& limits);

  ServerContext& server() { return server_; }
  const ServerContext& server() const { return server_; }
  ClientStream& stream() { return stream_; }
  const HttpRequest& request() const { return request_; }
  const std::string& request_id() const { return request_id_; }
  std::string path() const;  // without the query
  // The value of a query parameter, as it stands in the target; nullopt when absent.
  std::optional<std::string> query(std::string_view name) const;

  // Sends one whole answer. Throws boost::system::system_error when the client is gone.
  boost::asio::awaitable<void> send_json(boost::beast::http::status status, boost::json::value body);
  boost::asio::awaitable<void> send_text(boost::beast::http::status status, std::string text,
                                         std::string_view content_type);
  boost::asio::awaitable<void> send_error(const HttpError& error);
  boost::asio::awaitable<void> send_error(const Error& error);

  // Server-sent events: head, then any number of events, then the end. An event is "data: TEXT\n\n".
  boost::asio::awaitable<void> start_events();
  boost::asio::awaitable<void> send_event(std::string_view text);
  // A line that clients skip; keeps the connection alive through proxies.
  boost::asio::awaitable<void> send_comment(std::string_view text);
  boost::asio::awaitable<void> finish_events();

  // The connection can take another request after this one.
  bool keeps_alive() const { return keeps_alive_; }
  void close_after() { keeps_alive_ = false; }
  boost::beast::http::status status() const { return status_; }
  bool has_started() const { return has_started_; }

  // For the access log.
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;

 private:
  void set_common_fields(boost::beast::http::fields& fields) const;
  boost::asio::awaitable<void> send_bytes(std::string text);
  void expect_progress();

  ServerContext& server_;
  ClientStream& stream_;
  HttpRequest request_;
  ServerLimits limits_;
  std::string request_id_;
  std::string allow_;
  bool keeps_alive_;
  bool is_chunked_ = true;
  bool has_started_ = false;
  boost::beast::http::status status_ = boost::beast::http::status::ok;
};

}  // namespace gimbal
