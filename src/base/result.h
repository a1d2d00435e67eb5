// Result<T>: a value or an Error. Functions that can fail for reasons outside the program return one.
#pragma once

#include <utility>

#include <tl/expected.hpp>

#include "base/error.h"

namespace gimbal {

template <typename T>
using Result = tl::expected<T, Error>;

using Status = tl::expected<void, Error>;

inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

}  // namespace gimbal

// Returns from the enclosing function when `expression` (a Result or Status) holds an error.
#define GIMBAL_RETURN_IF_ERROR(expression)                                 \
  do {                                                                     \
    if (auto gimbal_status_ = (expression); !gimbal_status_.has_value()) { \
      return ::tl::unexpected(std::move(gimbal_status_.error()));          \
    }                                                                      \
  } while (false)

#define GIMBAL_CONCAT_INNER(a, b) a##b
#define GIMBAL_CONCAT(a, b) GIMBAL_CONCAT_INNER(a, b)

// GIMBAL_ASSIGN_OR_RETURN(auto value, make_value()): declares or assigns the value, or returns the error.
#define GIMBAL_ASSIGN_OR_RETURN(declaration, expression) \
  GIMBAL_ASSIGN_OR_RETURN_INNER(GIMBAL_CONCAT(gimbal_result_, __LINE__), declaration, expression)
#define GIMBAL_ASSIGN_OR_RETURN_INNER(result, declaration, expression)         \
  auto result = (expression);                                                  \
  if (!result.has_value()) return ::tl::unexpected(std::move(result.error())); \
  declaration = std::move(*result)
