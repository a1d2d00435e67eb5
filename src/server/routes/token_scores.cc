#include "server/routes/token_scores.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tokenizer/incremental_detokenizer.h"

namespace gimbal {
namespace {

namespace json = boost::json;

double finite(double log_probability) { return std::max(log_probability, -9999.0); }

double log_probability_of(const TopLogit& top, const RowScore& row) {
  return finite(static_cast<double>(top.logit) - row.log_sum_exp);
}

json::value number_or_null(const std::optional<double>& log_probability) {
  if (!log_probability || std::isnan(*log_probability)) return nullptr;
  return finite(*log_probability);
}

json::array bytes_of(const Tokenizer& tokenizer, TokenId id) {
  json::array bytes;
  for (const char byte : tokenizer.token_bytes(id)) bytes.push_back(static_cast<unsigned char>(byte));
  return bytes;
}

int64_t num_characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

json::object vllm_entry(const Tokenizer& tokenizer, TokenId id, double log_probability, int64_t rank) {
  json::object entry;
  entry["logprob"] = finite(log_probability);
  entry["rank"] = rank;
  entry["decoded_token"] = token_text(tokenizer, id);
  return entry;
}

}  // namespace

std::string token_text(const Tokenizer& tokenizer, TokenId id) {
  IncrementalDetokenizer detokenizer(tokenizer, /*skip_special_tokens=*/false);
  std::string text = detokenizer.append(id);
  return text + detokenizer.flush();
}

json::object chat_token(const Tokenizer& tokenizer, const ScoredToken& token) {
  json::object object;
  object["token"] = token_text(tokenizer, token.id);
  object["logprob"] = number_or_null(token.log_probability);
  object["bytes"] = bytes_of(tokenizer, token.id);
  json::array alternatives;
  for (const TopLogit& top : token.row.top) {
    json::object other;
    other["token"] = token_text(tokenizer, top.id);
    other["logprob"] = log_probability_of(top, token.row);
    other["bytes"] = bytes_of(tokenizer, top.id);
    alternatives.push_back(std::move(other));
  }
  object["top_logprobs"] = std::move(alternatives);
  return object;
}

json::object completion_tokens(const Tokenizer& tokenizer, const std::vector<ScoredToken>& tokens, int64_t& offset) {
  json::array texts, scores, tops, offsets;
  for (const ScoredToken& token : tokens) {
    const std::string text = token_text(tokenizer, token.id);
    json::object alternatives;
    for (const TopLogit& top : token.row.top)
      alternatives[token_text(tokenizer, top.id)] = log_probability_of(top, token.row);
    offsets.push_back(offset);
    offset += num_characters(text);
    texts.push_back(json::value(text));
    scores.push_back(number_or_null(token.log_probability));
    tops.push_back(token.log_probability ? json::value(std::move(alternatives)) : json::value(nullptr));
  }
  json::object object;
  object["tokens"] = std::move(texts);
  object["token_logprobs"] = std::move(scores);
  object["top_logprobs"] = std::move(tops);
  object["text_offset"] = std::move(offsets);
  return object;
}

json::array sglang_token(const Tokenizer& tokenizer, const ScoredToken& token, bool wants_text) {
  json::array entry;
  entry.push_back(number_or_null(token.log_probability));
  entry.push_back(token.id);
  entry.push_back(wants_text ? json::value(token_text(tokenizer, token.id)) : json::value(nullptr));
  return entry;
}

json::value sglang_alternatives(const Tokenizer& tokenizer, const ScoredToken& token, bool wants_text) {
  if (!token.log_probability) return nullptr;
  json::array entries;
  for (const TopLogit& top : token.row.top) {
    entries.push_back(
        sglang_token(tokenizer, {.id = top.id, .log_probability = log_probability_of(top, token.row)}, wants_text));
  }
  return entries;
}

json::array prompt_log_probabilities(const Tokenizer& tokenizer, const std::vector<ScoredToken>& tokens) {
  json::array result;
  for (const ScoredToken& token : tokens) {
    if (!token.log_probability) {
      result.push_back(nullptr);
      continue;
    }
    json::object entries;
    int64_t rank = 0;
    int64_t own_rank = 0;
    for (const TopLogit& top : token.row.top) {
      ++rank;
      if (top.id == token.id) own_rank = rank;
      entries[fmt::format("{}", top.id)] = vllm_entry(tokenizer, top.id, log_probability_of(top, token.row), rank);
    }
    if (own_rank == 0)  // below those that were asked for: its rank is not counted
      entries[fmt::format("{}", token.id)] = vllm_entry(tokenizer, token.id, *token.log_probability, rank + 1);
    result.push_back(std::move(entries));
  }
  return result;
}

std::vector<ScoredToken> score_prompt(const std::vector<TokenId>& prompt, int64_t first,
                                      const std::vector<RowScore>& rows) {
  std::vector<ScoredToken> tokens;
  const int64_t first_row = std::max<int64_t>(first - 1, 0);  // predicts id first_row + 1
  for (auto position = static_cast<size_t>(first); position < prompt.size(); ++position) {
    ScoredToken token{.id = prompt[position]};
    const auto row = static_cast<int64_t>(position) - 1 - first_row;
    if (row >= 0 && row < static_cast<int64_t>(rows.size())) {
      token.row = rows[static_cast<size_t>(row)];
      token.log_probability = token.row.log_probability;
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace gimbal
