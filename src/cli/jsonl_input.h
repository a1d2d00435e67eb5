// JSON-lines input of the commands: one object a line, errors with file and line number.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <boost/json/object.hpp>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace gimbal {

struct JsonLine {
  std::string where;  // "FILE, line N", for errors
  boost::json::object object;
};

// Reads all lines; blank lines are skipped. No line at all is an error.
Result<std::vector<JsonLine>> read_json_lines(const std::filesystem::path& path);

// The "id" of a line as text: a string or an integer; the line's place when absent.
Result<std::string> read_line_id(const JsonLine& line);

// The token ids of a line: from "ids" (integers inside the vocabulary) or by encoding `text_key` as ordinary text;
// exactly one must be there.
struct TokenSource {
  const Tokenizer* tokenizer = nullptr;
  int64_t vocab_size = 0;
  const char* text_key = "text";
};
Result<std::vector<TokenId>> read_line_tokens(const JsonLine& line, const TokenSource& source);

}  // namespace gimbal
