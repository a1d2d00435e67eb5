// chat_request: reads the conversation part of a chat request body.
#pragma once

#include <vector>
#include <boost/json/object.hpp>

#include "base/result.h"
#include "conversation/chat_template.h"

namespace gimbal {

struct ChatRequest {
  std::vector<ChatMessage> messages;
  ChatOptions options;
};

// Reads `messages`, `chat_template_kwargs` `add_generation_prompt` and
// `continue_final_message`. Content is a string, null or a list of text
// parts, which are joined. Tools, tool calls, tool turns and media parts are refused by name: this build renders plain
// text turns.
Result<ChatRequest> read_chat_request(const boost::json::object& body);

}  // namespace gimbal
