#include "server/exchange.h"

#include <fmt/format.h>

#include <algorithm>
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

Exchange::Exchange(ServerContext& server, ClientStream& stream, HttpRequest request, const ServerLimits& limits)
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
  if (server_.cors_origin.empty()) return;
  fields.set(http::field::access_control_allow_origin, server_.cors_origin);
  fields.set(http::field::access_control_allow_methods, "GET, POST, PUT, OPTIONS");
  fields.set(http::field::access_control_allow_headers, "authorization, content-type");
  fields.set(http::field::access_control_expose_headers, "x-request-id, retry-after");
}

// A reader that takes no data for this long is gone.
void Exchange::expect_progress() { stream_.expires_after(limits_.request_timeout); }

std::optional<std::string> Exchange::query(std::string_view name) const {
  const std::string_view target = request_.target();
  const size_t begin = target.find('?');
  if (begin == std::string_view::npos) return std::nullopt;
  std::string_view rest = target.substr(begin + 1);
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    if (pair.substr(0, pair.find('=')) != name) continue;
    return std::string(pair.size() > name.size() ? pair.substr(name.size() + 1) : std::string_view());
  }
  return std::nullopt;
}

asio::awaitable<void> Exchange::send_json(http::status status, boost::json::value body) {
  return send_text(status, boost::json::serialize(body), "application/json");
}

asio::awaitable<void> Exchange::send_text(http::status status, std::string text, std::string_view content_type) {
  http::response<http::string_body> response(status, request_.version());
  set_common_fields(response);
  response.set(http::field::content_type, content_type);
  if (status == http::status::unauthorized) response.set(http::field::www_authenticate, "Bearer");
  if (status == http::status::service_unavailable || status == http::status::too_many_requests)
    response.set(http::field::retry_after, "1");
  if (!allow_.empty()) response.set(http::field::allow, allow_);
  response.keep_alive(keeps_alive_);
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
  return send_bytes(fmt::format("data: {}\n\n", text));
}

asio::awaitable<void> Exchange::send_comment(std::string_view text) {
  return send_bytes(fmt::format(": {}\n\n", text));
}

asio::awaitable<void> Exchange::send_bytes(std::string text) {
  expect_progress();
  if (is_chunked_) {
    co_await asio::async_write(stream_, http::make_chunk(asio::buffer(text)), asio::use_awaitable);
  } else {
    co_await asio::async_write(stream_, asio::buffer(text), asio::use_awaitable);
  }
}

asio::awaitable<void> Exchange::finish_events() {
  expect_progress();
  if (is_chunked_) co_await asio::async_write(stream_, http::make_chunk_last(), asio::use_awaitable);
}

}  // namespace gimbal
