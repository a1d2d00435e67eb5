#include "checkpoint/safetensors_header_handler.h"

#include <cstdint>
#include <string>

#include <boost/json/basic_parser_impl.hpp>
#include <fmt/format.h>

namespace gimbal {
namespace {

constexpr size_t kMaxDimensions = 16;
constexpr size_t kMaxNameBytes = 4096;
constexpr uint64_t kMaxOffset = uint64_t{1} << 62;

// Receives the parser's events. Any of them may stop the parse by setting the error code; `reason` then says why.
class HeaderHandler {
 public:
  static constexpr size_t max_object_size = SIZE_MAX;
  static constexpr size_t max_array_size = SIZE_MAX;
  static constexpr size_t max_key_size = SIZE_MAX;
  static constexpr size_t max_string_size = SIZE_MAX;
  using Code = boost::system::error_code;

  std::vector<SafetensorsEntry> entries;
  std::string reason;

  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }

  bool on_object_begin(Code& code) {
    if (place_ == Place::kTop) return enter(Place::kRoot);
    if (place_ == Place::kRoot && !is_metadata_) {
      entries.emplace_back().name = name_;
      seen_ = 0;
      return enter(Place::kTensor);
    }
    if (place_ == Place::kRoot) return enter(Place::kMetadata);
    return wrong_value(code, "an object");
  }

  bool on_object_end(size_t, Code& code) {
    if (place_ == Place::kTensor && seen_ != (kType | kShape | kOffsets)) {
      return stop(code,
                  fmt::format("tensor {} has no {}; each needs dtype, shape and data_offsets.", entries.back().name,
                              (seen_ & kType) == 0    ? "dtype"
                              : (seen_ & kShape) == 0 ? "shape"
                                                      : "data_offsets"));
    }
    return enter(place_ == Place::kRoot ? Place::kTop : Place::kRoot);
  }

  bool on_array_begin(Code& code) {
    if (place_ != Place::kTensor || (field_ != kShape && field_ != kOffsets)) return wrong_value(code, "an array");
    return enter(field_ == kShape ? Place::kShapeList : Place::kOffsetList);
  }

  bool on_array_end(size_t count, Code& code) {
    if (place_ == Place::kOffsetList) {
      if (count != 2) {
        return stop(
            code, fmt::format("data_offsets of tensor {} has {} numbers; two are needed.", entries.back().name, count));
      }
      if (offsets_[0] > offsets_[1]) {
        return stop(code, fmt::format("data_offsets [{}, {}] of tensor {} end before they begin.", offsets_[0],
                                      offsets_[1], entries.back().name));
      }
      entries.back().begin = offsets_[0];
      entries.back().bytes = offsets_[1] - offsets_[0];
    }
    return enter(Place::kTensor);
  }

  bool on_key_part(std::string_view text, size_t, Code& code) { return gather(text, code); }
  bool on_key(std::string_view text, size_t, Code& code) {
    if (!gather(text, code)) return false;
    std::string key = std::move(text_);
    text_.clear();
    if (place_ == Place::kRoot) {
      is_metadata_ = key == "__metadata__";
      name_ = std::move(key);
      return true;
    }
    return place_ == Place::kMetadata || start_field(key, code);
  }

  bool on_string_part(std::string_view text, size_t, Code& code) {
    return place_ == Place::kMetadata || gather(text, code);
  }
  bool on_string(std::string_view text, size_t, Code& code) {
    if (place_ == Place::kMetadata) return true;
    if (!gather(text, code)) return false;
    const std::string value = std::move(text_);
    text_.clear();
    if (place_ != Place::kTensor || field_ != kType) return wrong_value(code, "a string");
    const auto type = parse_safetensors_name(value);
    if (!type)
      return stop(code, fmt::format("tensor {} has the unknown element type '{}'.", entries.back().name, value));
    entries.back().data_type = *type;
    return true;
  }

  bool on_number_part(std::string_view, Code&) { return true; }
  bool on_int64(int64_t number, std::string_view, Code& code) {
    if (number < 0 && (place_ == Place::kShapeList || place_ == Place::kOffsetList)) {
      return stop(code, fmt::format("tensor {} has the negative number {} in its {}.", entries.back().name, number,
                                    place_ == Place::kShapeList ? "shape" : "data_offsets"));
    }
    return on_uint64(static_cast<uint64_t>(number), {}, code);
  }
  bool on_uint64(uint64_t number, std::string_view, Code& code) {
    if (place_ != Place::kShapeList && place_ != Place::kOffsetList) return wrong_value(code, "a number");
    if (number > kMaxOffset) {
      return stop(code, fmt::format("tensor {} has the impossible number {} in its {}.", entries.back().name, number,
                                    place_ == Place::kShapeList ? "shape" : "data_offsets"));
    }
    if (place_ == Place::kShapeList) {
      if (entries.back().shape.size() == kMaxDimensions) {
        return stop(code, fmt::format("tensor {} has more than {} dimensions.", entries.back().name, kMaxDimensions));
      }
      entries.back().shape.push_back(static_cast<int64_t>(number));
    } else if (num_offsets_ < 2) {
      offsets_[num_offsets_++] = number;
    }
    return true;
  }
  bool on_double(double, std::string_view, Code& code) { return wrong_value(code, "a fractional or huge number"); }
  bool on_bool(bool, Code& code) { return wrong_value(code, "true or false"); }
  bool on_null(Code& code) { return wrong_value(code, "null"); }
  bool on_comment_part(std::string_view, Code&) { return true; }
  bool on_comment(std::string_view, Code&) { return true; }

 private:
  enum class Place { kTop, kRoot, kMetadata, kTensor, kShapeList, kOffsetList };
  static constexpr unsigned kType = 1;
  static constexpr unsigned kShape = 2;
  static constexpr unsigned kOffsets = 4;

  bool enter(Place place) {
    place_ = place;
    return true;
  }

  bool stop(Code& code, std::string why) {
    reason = std::move(why);
    code = boost::json::make_error_code(boost::json::error::syntax);
    return false;
  }

  bool gather(std::string_view text, Code& code) {
    if (text_.size() + text.size() > kMaxNameBytes) {
      return stop(code, fmt::format("the header has a name or type longer than {} bytes.", kMaxNameBytes));
    }
    text_.append(text);
    return true;
  }

  bool start_field(const std::string& key, Code& code) {
    field_ = key == "dtype" ? kType : key == "shape" ? kShape : key == "data_offsets" ? kOffsets : 0;
    const std::string& tensor = entries.back().name;
    if (field_ == 0) {
      return stop(
          code, fmt::format("tensor {} has the unknown key '{}'; known are dtype, shape, data_offsets.", tensor, key));
    }
    if ((seen_ & field_) != 0) return stop(code, fmt::format("tensor {} has the key '{}' twice.", tensor, key));
    seen_ |= field_;
    num_offsets_ = 0;
    return true;
  }

  bool wrong_value(Code& code, std::string_view found) {
    switch (place_) {
      case Place::kTop:
        return stop(code, fmt::format("the header must be one JSON object, found {}.", found));
      case Place::kRoot:
        return stop(code, fmt::format("{} must be an object, found {}.", name_, found));
      case Place::kMetadata:
        return stop(code, fmt::format("__metadata__ may hold strings only, found {}.", found));
      case Place::kTensor:
        return stop(code,
                    fmt::format("the {} of tensor {} must be {}, found {}.",
                                field_ == kType    ? "dtype"
                                : field_ == kShape ? "shape"
                                                   : "data_offsets",
                                entries.back().name, field_ == kType ? "a string" : "a list of whole numbers", found));
      case Place::kShapeList:
      case Place::kOffsetList:
        break;
    }
    return stop(code, fmt::format("the {} of tensor {} must hold whole numbers, found {}.",
                                  place_ == Place::kShapeList ? "shape" : "data_offsets", entries.back().name, found));
  }

  Place place_ = Place::kTop;
  bool is_metadata_ = false;
  unsigned field_ = 0;
  unsigned seen_ = 0;
  std::string name_;  // last key of the root object
  std::string text_;  // key or string that arrives in parts
  uint64_t offsets_[2] = {0, 0};
  size_t num_offsets_ = 0;
};

}  // namespace

Result<std::vector<SafetensorsEntry>> parse_safetensors_json(std::string_view text) {
  if (!text.starts_with('{')) return fail(Error::invalid("the header is not JSON: it does not start with '{'."));
  boost::json::parse_options options;
  options.max_depth = 4;
  boost::json::basic_parser<HeaderHandler> parser(options);
  boost::system::error_code code;
  const size_t consumed = parser.write_some(false, text.data(), text.size(), code);
  if (!parser.handler().reason.empty()) return fail(Error::invalid(std::move(parser.handler().reason)));
  if (code) {
    return fail(Error::invalid(
        fmt::format("the header is not valid JSON: {} near byte {} of {}.", code.message(), consumed, text.size())));
  }
  if (consumed != text.size()) {
    return fail(Error::invalid(
        fmt::format("{} bytes follow the JSON object of the header; only blanks may.", text.size() - consumed)));
  }
  return std::move(parser.handler().entries);
}

}  // namespace gimbal
