// Error: what went wrong, in one paragraph for a person and with a stable kind for the program.
//
// Three kinds of fault are kept apart (docs/adr/0003-error-handling.md): recoverable faults travel as Result<T>, a
// fault that ends one request is an Error mapped to an HTTP status, a programmer's error is a failed GIMBAL_CHECK.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace gimbal {

// The order and names are stable: exit codes and HTTP statuses are derived from them.
enum class ErrorKind {
  kInvalidRequest,  // the caller asked for something that cannot be (exit 2, HTTP 400)
  kWorkFailed,      // the request was sound but the work failed (exit 1, HTTP 500)
  kUnreachable,     // a remote side did not answer (exit 3, HTTP 502)
  kUnavailable,     // starting, stopping or broken: try again later (exit 1, HTTP 503)
  kTooManyWaiting,  // the queue is full: try again later (exit 1, HTTP 429)
  kDeadlinePassed,  // the work was not done in the time that was set (exit 1, HTTP 504)
};

struct Error {
  ErrorKind kind = ErrorKind::kWorkFailed;
  // What was asked, what is in the way, what to do. No trailing newline; may have several lines.
  std::string message;
  // Name of the offending field or setting where there is one ("max_tokens", "--port"); empty otherwise.
  std::string parameter;

  static Error invalid(std::string message, std::string parameter = {}) {
    return {ErrorKind::kInvalidRequest, std::move(message), std::move(parameter)};
  }
  static Error failed(std::string message) { return {ErrorKind::kWorkFailed, std::move(message), {}}; }
  static Error unavailable(std::string message) { return {ErrorKind::kUnavailable, std::move(message), {}}; }
};

// Process exit code of docs: 0 done, 1 the work failed, 2 the request was invalid, 3 the remote side was unreachable.
constexpr int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidRequest:
      return 2;
    case ErrorKind::kUnreachable:
      return 3;
    case ErrorKind::kWorkFailed:
    case ErrorKind::kUnavailable:
    case ErrorKind::kTooManyWaiting:
    case ErrorKind::kDeadlinePassed:
      break;
  }
  return 1;
}

}  // namespace gimbal
