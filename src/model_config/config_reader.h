// ConfigReader: typed reading of one JSON object of config.json; every violated rule is collected, none ends the
// reading.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>
#include <boost/json/object.hpp>

namespace gimbal {

// Lines for the one error message, shared by the readers of nested objects.
using Violations = std::vector<std::string>;

struct IntegerRange {
  int64_t least = 0;
  int64_t most = 0;
};

// Null counts as absent. Not thread-safe; `object` and `violations` must outlive the reader.
class ConfigReader {
 public:
  // `path` is put before every key in messages: "" or "text_config.".
  ConfigReader(const boost::json::object& object, std::string path, Violations& violations);

  const boost::json::value* find(std::string_view key);  // nullptr when absent or null; marks the key as known
  bool has(std::string_view key) const;

  // Integers, also when written as a float without fraction is refused: 64.0 is not an integer here.
  int64_t required_integer(std::string_view key, IntegerRange range);
  int64_t integer_or(std::string_view key, int64_t otherwise, IntegerRange range);
  double number_or(std::string_view key, double otherwise, double least, double most);
  std::optional<double> number(std::string_view key, double least, double most);
  bool boolean_or(std::string_view key, bool otherwise);
  std::optional<std::string> string(std::string_view key);

  void mark_known(std::string_view key) { known_.insert(std::string(key)); }
  std::vector<std::string> unknown_keys() const;
  void violate(std::string_view key, std::string_view found, std::string_view allowed);
  const std::string& path() const { return path_; }

 private:
  std::optional<int64_t> read_integer(std::string_view key, IntegerRange range);

  const boost::json::object& object_;
  std::string path_;
  Violations& violations_;
  std::set<std::string> known_;
};

// The value as it stands in the file, shortened for a message.
std::string shown(const boost::json::value& value);

}  // namespace gimbal
