// openai_answer: runs the choices of one exchange and answers in the shape of OpenAI's completions or chat completions,
// streamed or whole.
#pragma once

#include <memory>
#include <string>
#include <vector>
#include <boost/asio/awaitable.hpp>

#include "server/exchange.h"
#include "server/generation.h"

namespace gimbal {

struct OpenAiAnswer {
  bool is_chat = false;
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;                   // usage so far in every chunk
  bool echo = false;                               // completions: the prompt's text stands before the answer
  bool log_probabilities = false;                  // of the answer's tokens (with echo: of the prompt's too)
  bool prompt_scores = false;                      // vLLM's prompt_logprobs
  int64_t num_choices = 1;                         // per prompt
  std::vector<std::vector<TokenId>> prompts = {};  // for echo and prompt scores
  std::vector<std::string> echo_texts = {};        // [prompts] with echo
};

// Takes the generation to its end. Sends exactly one answer, or events that end with [DONE] or an error.
boost::asio::awaitable<void> answer_openai(Exchange& exchange, std::unique_ptr<Generation> generation,
                                           OpenAiAnswer form);

}  // namespace gimbal
