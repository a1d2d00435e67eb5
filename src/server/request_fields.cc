#include "server/request_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <boost/json/serialize.hpp>

#include "base/nearest_name.h"

namespace gimbal {
namespace {

std::string shown(const boost::json::value& value) {
  constexpr size_t kLongest = 60;
  std::string text = value.is_double() ? fmt::format("{}", value.get_double()) : boost::json::serialize(value);
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

}  // namespace

const boost::json::value* FieldReader::find(std::string_view key) {
  read_.emplace(key);
  const boost::json::value* value = object_.if_contains(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

void FieldReader::refuse(std::string_view key, std::string_view why) {
  if (error_) return;
  const std::string name = path_ + std::string(key);
  error_ = Error::invalid(fmt::format("{}: {}.", name, why), name);
}

bool FieldReader::boolean(std::string_view key, bool otherwise) {
  const boost::json::value* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_bool()) {
    refuse(key, fmt::format("{} is not true or false", shown(*value)));
    return otherwise;
  }
  return value->get_bool();
}

std::optional<int64_t> FieldReader::optional_integer(std::string_view key, int64_t least, int64_t most) {
  const boost::json::value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_int64() || value->get_int64() < least || value->get_int64() > most) {
    refuse(key, fmt::format("{} is not an integer from {} to {}", shown(*value), least, most));
    return std::nullopt;
  }
  return value->get_int64();
}

int64_t FieldReader::integer(std::string_view key, int64_t otherwise, int64_t least, int64_t most) {
  return optional_integer(key, least, most).value_or(otherwise);
}

double FieldReader::number(std::string_view key, double otherwise, double least, double most) {
  const boost::json::value* value = find(key);
  if (value == nullptr) return otherwise;
  double number = std::nan("");
  if (value->is_double()) number = value->get_double();
  if (value->is_int64()) number = static_cast<double>(value->get_int64());
  if (!(number >= least && number <= most)) {
    refuse(key, fmt::format("{} is not a number from {} to {}", shown(*value), least, most));
    return otherwise;
  }
  return number;
}

std::optional<std::string> FieldReader::text(std::string_view key) {
  const boost::json::value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    refuse(key, fmt::format("{} is not a string", shown(*value)));
    return std::nullopt;
  }
  return std::string(value->get_string());
}

std::vector<std::string> FieldReader::texts(std::string_view key, size_t most) {
  const boost::json::value* value = find(key);
  std::vector<std::string> result;
  if (value == nullptr) return result;
  if (value->is_string()) return {std::string(value->get_string())};
  bool is_list = value->is_array();
  if (is_list && value->get_array().size() > most) {
    refuse(key, fmt::format("has {} entries, at most {} are taken", value->get_array().size(), most));
    return result;
  }
  if (is_list) {
    for (const boost::json::value& entry : value->get_array()) {
      is_list = is_list && entry.is_string();
      if (entry.is_string()) result.emplace_back(entry.get_string());
    }
  }
  if (!is_list) refuse(key, fmt::format("{} is not a string or a list of strings", shown(*value)));
  return result;
}

std::vector<int32_t> FieldReader::token_ids(std::string_view key, int64_t vocab_size, size_t most) {
  const boost::json::value* value = find(key);
  std::vector<int32_t> ids;
  if (value == nullptr) return ids;
  if (!value->is_array() || value->get_array().size() > most) {
    refuse(key, fmt::format("must be a list of at most {} token ids", most));
    return ids;
  }
  for (const boost::json::value& id : value->get_array()) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= vocab_size) {
      refuse(key, fmt::format("{} is not an id of the vocabulary of {} ids", shown(id), vocab_size));
      return {};
    }
    ids.push_back(static_cast<int32_t>(id.get_int64()));
  }
  return ids;
}

void FieldReader::only_boolean(std::string_view key, bool only) {
  const boost::json::value* value = find(key);
  if (value != nullptr && *value != only)
    refuse(key, fmt::format("{} is not supported by this build; offered: {}", shown(*value), only));
}

void FieldReader::only_number(std::string_view key, double only) {
  const boost::json::value* value = find(key);
  if (value == nullptr) return;
  const bool is_same = (value->is_int64() && static_cast<double>(value->get_int64()) == only) ||
                       (value->is_double() && value->get_double() == only);
  if (!is_same) refuse(key, fmt::format("{} is not supported by this build; offered: {}", shown(*value), only));
}

void FieldReader::only_absent(std::string_view key) {
  const boost::json::value* value = find(key);
  if (value == nullptr || (value->is_array() && value->get_array().empty()) ||
      (value->is_object() && value->get_object().empty()))
    return;
  refuse(key, fmt::format("{} is not supported by this build; leave the field out", shown(*value)));
}

void FieldReader::ignore(std::span<const std::string_view> keys) {
  for (const std::string_view key : keys) read_.emplace(key);
}

void FieldReader::refuse_unknown() {
  for (const auto& entry : object_) {
    const std::string_view key = entry.key();
    if (entry.value().is_null() || read_.contains(key)) continue;
    const std::vector<std::string> known(read_.begin(), read_.end());
    const auto near = nearest_names(key, known, 1);
    return refuse(key, near.empty() ? "is not a known field"
                                    : fmt::format("is not a known field; did you mean {}", near.front()));
  }
}

}  // namespace gimbal
