#include "base/json_reading.h"

#include <algorithm>

#include <boost/json/stream_parser.hpp>
#include <fmt/format.h>

namespace gimbal {

Result<boost::json::value> parse_json(std::string_view text, std::string_view what) {
  boost::json::parse_options options;
  options.max_depth = 64;
  boost::json::stream_parser parser({}, options);
  boost::system::error_code error;
  const size_t consumed = parser.write(text, error);
  if (!error) parser.finish(error);
  if (!error) return parser.release();
  const std::string_view before = text.substr(0, std::min(consumed, text.size()));
  const size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  const size_t newline = before.rfind('\n');
  const size_t column = newline == std::string_view::npos ? before.size() + 1 : before.size() - newline;
  return fail(Error::invalid(
      fmt::format("{} is not valid JSON: {} at line {}, column {}.", what, error.message(), line, column)));
}

}  // namespace gimbal
