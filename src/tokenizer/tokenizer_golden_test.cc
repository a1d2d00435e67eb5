// All recorded cases of the tokenizer (tests/golden/data/tokenizer), exactly.
#include <gtest/gtest.h>

#include <fstream>
#include <boost/json.hpp>

#include "tokenizer/incremental_detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace gimbal {
namespace {

const std::string kSource = GIMBAL_SOURCE_DIR;

std::vector<boost::json::object> read_lines(const std::string& name) {
  std::ifstream stream(kSource + "/tests/golden/data/tokenizer/" + name);
  std::vector<boost::json::object> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(boost::json::parse(line).as_object());
  return lines;
}

const Tokenizer& tokenizer() {
  static const Tokenizer kTokenizer = *Tokenizer::read(kSource + "/models/kimi-k2-mini");
  return kTokenizer;
}

std::vector<TokenId> ids_of(const boost::json::value& value) {
  return boost::json::value_to<std::vector<TokenId>>(value);
}

std::string text_of(const std::vector<TokenId>& ids) {
  std::string text;
  for (const TokenId id : ids) text += tokenizer().token_bytes(id);
  return text;
}

TEST(TokenizerGolden, Encode) {
  const auto lines = read_lines("encode.jsonl");
  ASSERT_EQ(lines.size(), 202u);
  for (const auto& line : lines) {
    const std::string text(line.at("text").as_string());
    SCOPED_TRACE(text.substr(0, 80));
    const auto as_text = tokenizer().encode(text, SpecialTokens::kAsText);
    const auto recognized = tokenizer().encode(text, SpecialTokens::kRecognized);
    EXPECT_EQ(as_text, ids_of(line.at("ids_special_disabled")));
    EXPECT_EQ(recognized, ids_of(line.at("ids_special_enabled")));
    const auto pieces = tokenizer().pre_tokenize(text);
    EXPECT_EQ(std::vector<std::string>(pieces.begin(), pieces.end()),
              boost::json::value_to<std::vector<std::string>>(line.at("pieces")));
    EXPECT_EQ(text_of(as_text), text);
    EXPECT_EQ(text_of(recognized), text);
  }
}

TEST(TokenizerGolden, Detokenize) {
  const auto lines = read_lines("detokenize.jsonl");
  ASSERT_EQ(lines.size(), 39u);
  for (const auto& line : lines) {
    SCOPED_TRACE(std::string(line.at("name").as_string()));
    IncrementalDetokenizer detokenizer(tokenizer(), line.at("skip_special_tokens").as_bool());
    std::string text;
    const auto steps = boost::json::value_to<std::vector<std::string>>(line.at("steps"));
    const auto ids = ids_of(line.at("ids"));
    for (size_t i = 0; i < ids.size(); ++i) {
      const std::string step = detokenizer.append(ids[i]);
      EXPECT_EQ(step, steps[i]) << "id " << i;
      text += step;
    }
    const std::string flush = detokenizer.flush();
    EXPECT_EQ(flush, line.at("flush").as_string());
    EXPECT_EQ(text + flush, line.at("text").as_string());
  }
}

TEST(TokenizerGolden, LongRuns) {
  const auto lines = read_lines("long_runs.jsonl");
  ASSERT_EQ(lines.size(), 13u);
  for (const auto& line : lines) {
    std::string text;
    for (const auto& part : line.at("parts").as_array()) {
      for (int64_t i = 0; i < part.as_array()[1].as_int64(); ++i) text += part.as_array()[0].as_string();
    }
    SCOPED_TRACE(text.substr(0, 40));
    const auto ids = tokenizer().encode(text, SpecialTokens::kRecognized);
    ASSERT_EQ(static_cast<int64_t>(ids.size()), line.at("n_ids").as_int64());
    const auto first = ids_of(line.at("first_ids")), last = ids_of(line.at("last_ids"));
    EXPECT_EQ(std::vector<TokenId>(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(first.size())), first);
    EXPECT_EQ(std::vector<TokenId>(ids.end() - static_cast<std::ptrdiff_t>(last.size()), ids.end()), last);
    int64_t sum = 0;
    for (const TokenId id : ids) sum += id;
    EXPECT_EQ(sum, line.at("ids_sum").as_int64());
    if (const auto* runs = line.if_contains("ids_rle"); runs != nullptr && runs->is_array()) {
      std::vector<TokenId> expected;
      for (const auto& run : runs->as_array()) {
        expected.insert(expected.end(), static_cast<size_t>(run.as_array()[1].as_int64()),
                        static_cast<TokenId>(run.as_array()[0].as_int64()));
      }
      EXPECT_EQ(ids, expected);
    }
  }
}

}  // namespace
}  // namespace gimbal
