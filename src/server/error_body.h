// error_body: an Error as an HTTP status and OpenAI's nested body.
#pragma once

#include <string>
#include <boost/beast/http/status.hpp>
#include <boost/json/object.hpp>

#include "base/error.h"

namespace gimbal {

struct HttpError {
  boost::beast::http::status status = boost::beast::http::status::bad_request;
  std::string type = {};  // "invalid_request_error", "server_error", "service_unavailable"
  std::string code = {};  // stable, for programs; empty: null
  std::string message = {};
  std::string parameter = {};  // empty: null
};

// kInvalidRequest: 400, kUnavailable: 503, others: 500.
HttpError to_http_error(const Error& error);

// {"error": {"message", "type", "param", "code"}}
boost::json::object error_body(const HttpError& error);

}  // namespace gimbal
