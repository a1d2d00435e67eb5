// Reading JSON documents from outside: bounded depth, errors with line and column.
#pragma once

#include <string>
#include <string_view>

#include <boost/json/value.hpp>

#include "base/result.h"

namespace gimbal {

// Parses UTF-8 JSON text (RFC 8259). `what` names the document in errors ("config.json", "request body").
Result<boost::json::value> parse_json(std::string_view text, std::string_view what);

}  // namespace gimbal
