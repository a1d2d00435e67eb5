// openai_answer: runs one generation and answers in the shape of OpenAI's completions or chat completions, streamed or
// whole.
#pragma once

#include <memory>
#include <string>
#include <boost/asio/awaitable.hpp>

#include "server/exchange.h"
#include "server/generation.h"

namespace gimbal {

struct OpenAiAnswer {
  bool is_chat = false;
  bool stream = false;
  bool include_usage = false;
};

// Takes the generation to its end. Sends exactly one answer, or events that end with [DONE] or an error.
boost::asio::awaitable<void> answer_openai(Exchange& exchange, std::unique_ptr<Generation> generation,
                                           OpenAiAnswer form);

}  // namespace gimbal
