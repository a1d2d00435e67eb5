#include "server/error_body.h"

namespace gimbal {

HttpError to_http_error(const Error& error) {
  HttpError result{.message = error.message, .parameter = error.parameter};
  switch (error.kind) {
    case ErrorKind::kInvalidRequest:
      result.status = boost::beast::http::status::bad_request;
      result.type = "invalid_request_error";
      result.code = "invalid_value";
      return result;
    case ErrorKind::kUnavailable:
      result.status = boost::beast::http::status::service_unavailable;
      result.type = "service_unavailable";
      result.code = "unavailable";
      return result;
    case ErrorKind::kTooManyWaiting:
      result.status = boost::beast::http::status::too_many_requests;
      result.type = "rate_limit_error";
      result.code = "queue_full";
      return result;
    case ErrorKind::kDeadlinePassed:
      result.status = boost::beast::http::status::gateway_timeout;
      result.type = "timeout_error";
      result.code = "deadline_passed";
      return result;
    case ErrorKind::kUnreachable:
    case ErrorKind::kWorkFailed:
      break;
  }
  result.status = boost::beast::http::status::internal_server_error;
  result.type = "server_error";
  result.code = "internal_error";
  return result;
}

boost::json::object error_body(const HttpError& error) {
  boost::json::object inner;
  inner["message"] = error.message;
  inner["type"] = error.type;
  inner["param"] = error.parameter.empty() ? boost::json::value(nullptr) : boost::json::value(error.parameter);
  inner["code"] = error.code.empty() ? boost::json::value(nullptr) : boost::json::value(error.code);
  return {{"error", std::move(inner)}};
}

}  // namespace gimbal
