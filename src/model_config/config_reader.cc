#include "model_config/config_reader.h"

#include <fmt/format.h>

#include <cmath>
#include <boost/json/serialize.hpp>

namespace gimbal {

std::string shown(const boost::json::value& value) {
  constexpr size_t kLongest = 80;
  std::string text = boost::json::serialize(value);
  if (value.is_double()) text = fmt::format("{}", value.get_double());
  if (value.is_string()) text = fmt::format("'{}'", std::string_view(value.get_string()));
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

ConfigReader::ConfigReader(const boost::json::object& object, std::string path, Violations& violations)
    : object_(object), path_(std::move(path)), violations_(violations) {}

const boost::json::value* ConfigReader::find(std::string_view key) {
  mark_known(key);
  const boost::json::value* value = object_.if_contains(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool ConfigReader::has(std::string_view key) const {
  const boost::json::value* value = object_.if_contains(key);
  return value != nullptr && !value->is_null();
}

void ConfigReader::violate(std::string_view key, std::string_view found, std::string_view allowed) {
  violations_.push_back(fmt::format("{}{} {}; allowed: {}", path_, key, found, allowed));
}

std::optional<int64_t> ConfigReader::read_integer(std::string_view key, IntegerRange range) {
  const boost::json::value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::string allowed = fmt::format("an integer from {} to {}", range.least, range.most);
  if (!value->is_int64() || value->get_int64() < range.least || value->get_int64() > range.most) {
    violate(key, "is " + shown(*value), allowed);
    return range.least;
  }
  return value->get_int64();
}

int64_t ConfigReader::required_integer(std::string_view key, IntegerRange range) {
  const std::optional<int64_t> value = read_integer(key, range);
  if (!value) violate(key, "is missing", fmt::format("an integer from {} to {}", range.least, range.most));
  return value.value_or(range.least);
}

int64_t ConfigReader::integer_or(std::string_view key, int64_t otherwise, IntegerRange range) {
  return read_integer(key, range).value_or(otherwise);
}

std::optional<double> ConfigReader::number(std::string_view key, double least, double most) {
  const boost::json::value* value = find(key);
  if (value == nullptr) return std::nullopt;
  double number = std::nan("");
  if (value->is_double()) number = value->get_double();
  if (value->is_int64()) number = static_cast<double>(value->get_int64());
  if (!(number >= least && number <= most)) {
    violate(key, "is " + shown(*value), fmt::format("a number from {} to {}", least, most));
    return least;
  }
  return number;
}

double ConfigReader::number_or(std::string_view key, double otherwise, double least, double most) {
  return number(key, least, most).value_or(otherwise);
}

bool ConfigReader::boolean_or(std::string_view key, bool otherwise) {
  const boost::json::value* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_bool()) {
    violate(key, "is " + shown(*value), "true or false");
    return otherwise;
  }
  return value->get_bool();
}

std::optional<std::string> ConfigReader::string(std::string_view key) {
  const boost::json::value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    violate(key, "is " + shown(*value), "a string");
    return std::nullopt;
  }
  return std::string(value->get_string());
}

std::vector<std::string> ConfigReader::unknown_keys() const {
  std::vector<std::string> keys;
  for (const auto& entry : object_) {
    if (!entry.value().is_null() && !known_.contains(std::string(entry.key())))
      keys.push_back(path_ + std::string(entry.key()));
  }
  return keys;
}

}  // namespace gimbal
