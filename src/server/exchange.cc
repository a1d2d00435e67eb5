#include "server/exchange.h"

#include <fmt/format.h>

#include <random>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/chunk_encode.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/serializer.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/json/serialize.hpp>

namespace gimbal {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

std::string make_request_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace

Exchange::Exchange(ServerContext& server, TcpStream& stream, HttpRequest request, const ServerLimits& limits)
    : server_(server),
      stream_(stream),
      request_(std::move(request)),
      limits_(limits),
      request_id_(make_request_id()),
      keeps_alive_(request_.keep_alive()) {}

std::string Exchange::path() const {
  const std::string_view target = request_.target();
  return std::string(target.substr(0, target.find('?')));
}

void Exchange::set_common_fields(http::fields& fields) const {
  fields.set("x-request-id", request_id_);
  fields.set(http::field::server, "gimbal");
}

// A reader that takes no data for this long is gone.
void Exchange::expect_progress() { stream_.expires_after(limits_.request_timeout); }

asio::awaitable<void> Exchange::send_json(http::status status, boost::json::value body) {
  http::response<http::string_body> response(status, request_.version());
  set_common_fields(response);
  response.set(http::field::content_type, "application/json");
  if (status == http::status::service_unavailable) response.set(http::field::retry_after, "1");
  if (!allow_.empty()) response.set(http::field::allow, allow_);
  response.keep_alive(keeps_alive_);
  std::string text = boost::json::serialize(body);
  if (request_.method() == http::verb::head) {
    response.content_length(text.size());
  } else {
    response.body() = std::move(text);
    response.prepare_payload();
  }
  status_ = status;
  has_started_ = true;
  expect_progress();
  http::response_serializer<http::string_body> serializer(response);
  if (request_.method() == http::verb::head) {
    co_await http::async_write_header(stream_, serializer, asio::use_awaitable);
  } else {
    co_await http::async_write(stream_, serializer, asio::use_awaitable);
  }
}

asio::awaitable<void> Exchange::send_error(const HttpError& error) {
  if (error.status == http::status::method_not_allowed) allow_ = error.parameter;
  HttpError shown = error;
  if (error.status == http::status::method_not_allowed) shown.parameter.clear();
  co_await send_json(error.status, error_body(shown));
}

asio::awaitable<void> Exchange::send_error(const Error& error) { co_await send_error(to_http_error(error)); }

asio::awaitable<void> Exchange::start_events() {
  http::response<http::empty_body> response(http::status::ok, request_.version());
  set_common_fields(response);
  response.set(http::field::content_type, "text/event-stream; charset=utf-8");
  response.set(http::field::cache_control, "no-cache");
  response.set("x-accel-buffering", "no");
  is_chunked_ = request_.version() >= 11;
  if (!is_chunked_) keeps_alive_ = false;  // HTTP/1.0 knows the end of a stream by the end of the connection
  response.keep_alive(keeps_alive_);
  response.chunked(is_chunked_);
  status_ = http::status::ok;
  has_started_ = true;
  expect_progress();
  http::response_serializer<http::empty_body> serializer(response);
  co_await http::async_write_header(stream_, serializer, asio::use_awaitable);
}

asio::awaitable<void> Exchange::send_event(std::string_view text) {
  const std::string event = fmt::format("data: {}\n\n", text);
  expect_progress();
  if (is_chunked_) {
    co_await asio::async_write(stream_, http::make_chunk(asio::buffer(event)), asio::use_awaitable);
  } else {
    co_await asio::async_write(stream_, asio::buffer(event), asio::use_awaitable);
  }
}

asio::awaitable<void> Exchange::finish_events() {
  expect_progress();
  if (is_chunked_) co_await asio::async_write(stream_, http::make_chunk_last(), asio::use_awaitable);
}

}  // namespace gimbal
