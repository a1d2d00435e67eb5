#include "cli/jsonl_input.h"

#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "base/file_text.h"
#include "base/json_reading.h"

namespace gimbal {

Result<std::vector<JsonLine>> read_json_lines(const std::filesystem::path& path) {
  GIMBAL_ASSIGN_OR_RETURN(const std::string text, read_file_text(path, uint64_t{4} << 30));
  std::vector<JsonLine> lines;
  int64_t line_number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    ++line_number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = fmt::format("{}, line {}", path.string(), line_number);
    GIMBAL_ASSIGN_OR_RETURN(boost::json::value value, parse_json(line, where));
    if (!value.is_object()) return fail(Error::invalid(fmt::format("{}: a JSON object is needed.", where)));
    lines.push_back({where, std::move(value.get_object())});
  }
  if (lines.empty())
    return fail(Error::invalid(fmt::format("{} holds no lines; one JSON object a line is needed.", path.string())));
  return lines;
}

Result<std::string> read_line_id(const JsonLine& line) {
  const boost::json::value* id = line.object.if_contains("id");
  if (id == nullptr || id->is_null()) return line.where;
  if (id->is_string()) return std::string(id->get_string());
  if (id->is_int64()) return fmt::format("{}", id->get_int64());
  return fail(Error::invalid(fmt::format("{}: \"id\" must be a string or an integer.", line.where)));
}

Result<std::vector<TokenId>> read_line_tokens(const JsonLine& line, const TokenSource& source) {
  const boost::json::value* ids = line.object.if_contains("ids");
  const boost::json::value* text = line.object.if_contains(source.text_key);
  if ((ids == nullptr) == (text == nullptr)) {
    return fail(
        Error::invalid(fmt::format("{}: exactly one of \"ids\" and \"{}\" is needed.", line.where, source.text_key)));
  }
  if (text != nullptr) {
    if (!text->is_string())
      return fail(Error::invalid(fmt::format("{}: \"{}\" must be a string.", line.where, source.text_key)));
    return source.tokenizer->encode(std::string_view(text->get_string()), SpecialTokens::kRecognized);
  }
  if (!ids->is_array()) return fail(Error::invalid(fmt::format("{}: \"ids\" must be a list of integers.", line.where)));
  std::vector<TokenId> tokens;
  tokens.reserve(ids->get_array().size());
  for (const boost::json::value& id : ids->get_array()) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= source.vocab_size) {
      return fail(Error::invalid(
          fmt::format("{}: \"ids\" holds {}, which is not an id of the vocabulary (0 to {}).", line.where,
                      id.is_int64() ? fmt::format("{}", id.get_int64()) : "a value that is not an integer",
                      source.vocab_size - 1)));
    }
    tokens.push_back(static_cast<TokenId>(id.get_int64()));
  }
  return tokens;
}

}  // namespace gimbal
