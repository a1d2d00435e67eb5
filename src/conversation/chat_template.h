// chat_template: a conversation to the text of a prompt, for the Kimi K2 family. Plain text turns.
//
// What a template writes itself (markers) becomes control ids; everything that came from the request stays ordinary
// text, also when it looks like a marker.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace gimbal {

enum class ChatTemplateKind { kKimiK2, kKimiK2Thinking, kKimiK25, kKimiK26 };

// "kimi-k2", "kimi-k2-thinking", "kimi-k2.5", "kimi-k2.6".
std::string_view name_of(ChatTemplateKind kind);

// The kind a name stands for; "auto" takes the model's: kimi-k2.6 with a vision part, else kimi-k2.
Result<ChatTemplateKind> parse_chat_template(std::string_view name, bool has_vision_part);

struct ChatMessage {
  std::string role;  // "system", "user", "assistant" or another one that is no tool's
  std::string name;  // shown instead of the role when not empty
  std::string content;
  std::string reasoning_content;  // of assistants
};

struct ChatOptions {
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the last turn stays open and is gone on with
  bool thinking = true;                 // ignored by templates without thinking
  bool preserve_thinking = false;       // kimi-k2.6: keep the reasoning of all turns
};

struct PromptSegment {
  std::string text;
  bool is_marker = false;
};

// The prompt as markers and the ordinary text between them; neighbouring texts are one segment.
std::vector<PromptSegment> render_chat(ChatTemplateKind kind, const std::vector<ChatMessage>& messages,
                                       const ChatOptions& options);

std::string join_segments(const std::vector<PromptSegment>& segments);

// Markers become their control id where the vocabulary has one; texts are encoded with SpecialTokens::kAsText.
std::vector<TokenId> encode_segments(const std::vector<PromptSegment>& segments, const Tokenizer& tokenizer);

}  // namespace gimbal
