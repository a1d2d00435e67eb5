// token_scores: log-probabilities of tokens in the shapes that clients know. All are of the model's own logits, before
// temperature, penalties and biases; natural logarithms.
#pragma once

#include <string>
#include <vector>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "engine/request_gateway.h"
#include "tokenizer/tokenizer.h"

namespace gimbal {

// One token with its score; `row` holds the alternatives.
struct ScoredToken {
  TokenId id = 0;
  std::optional<double> log_probability = {};  // absent: the first token of a prompt
  RowScore row = {};
};

// The token's text; bytes that are not UTF-8 become U+FFFD, as in a whole text.
std::string token_text(const Tokenizer& tokenizer, TokenId id);

// {"token", "logprob", "bytes", "top_logprobs": [..]} of OpenAI's chat completions.
boost::json::object chat_token(const Tokenizer& tokenizer, const ScoredToken& token);

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"} of OpenAI's completions. `offset` is of the first token
// in characters and grows.
boost::json::object completion_tokens(const Tokenizer& tokenizer, const std::vector<ScoredToken>& tokens,
                                      int64_t& offset);

// [logprob, id, text or null] of SGLang, and its list of alternatives.
boost::json::array sglang_token(const Tokenizer& tokenizer, const ScoredToken& token, bool wants_text);
boost::json::value sglang_alternatives(const Tokenizer& tokenizer, const ScoredToken& token, bool wants_text);

// [null, {"id": {"logprob", "rank", "decoded_token"}}, ...] of vLLM's prompt_logprobs.
boost::json::array prompt_log_probabilities(const Tokenizer& tokenizer, const std::vector<ScoredToken>& tokens);

// The scores of prompt ids from `first` on; `rows[i]` predicts id first_scored + i + 1.
std::vector<ScoredToken> score_prompt(const std::vector<TokenId>& prompt, int64_t first,
                                      const std::vector<RowScore>& rows);

}  // namespace gimbal
