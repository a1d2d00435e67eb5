// request_fields: strict reading of a request body's fields. Null counts as absent; the first wrong field is the
// answer.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <boost/json/object.hpp>

#include "base/result.h"

namespace gimbal {

// Reads fields one after the other; after the first fault every further read gives its default and `status` holds the
// fault. One thread; `object` must outlive the reader.
class FieldReader {
 public:
  explicit FieldReader(const boost::json::object& object, std::string path = {})
      : object_(object), path_(std::move(path)) {}

  const boost::json::value* find(std::string_view key);  // nullptr when absent or null; counts as read
  bool boolean(std::string_view key, bool otherwise);
  int64_t integer(std::string_view key, int64_t otherwise, int64_t least, int64_t most);
  std::optional<int64_t> optional_integer(std::string_view key, int64_t least, int64_t most);
  double number(std::string_view key, double otherwise, double least, double most);
  std::optional<std::string> text(std::string_view key);
  // A string, or a list of strings; absent: empty.
  std::vector<std::string> texts(std::string_view key, size_t most);
  std::vector<int32_t> token_ids(std::string_view key, int64_t vocab_size, size_t most);

  // The field is known but has no meaning here unless it keeps this harmless value.
  void only_boolean(std::string_view key, bool only);
  void only_number(std::string_view key, double only);
  void only_absent(std::string_view key);  // an empty list or object passes too
  void ignore(std::span<const std::string_view> keys);

  void refuse(std::string_view key, std::string_view why);
  // Refuses fields that nothing has read.
  void refuse_unknown();

  const std::optional<Error>& error() const { return error_; }

 private:
  const boost::json::object& object_;
  std::string path_;
  std::set<std::string, std::less<>> read_;
  std::optional<Error> error_;
};

}  // namespace gimbal
