#include "conversation/chat_template.h"

#include <fmt/format.h>

#include <array>

namespace gimbal {
namespace {

struct KindName {
  ChatTemplateKind kind;
  std::string_view name;
};
constexpr std::array<KindName, 4> kNames = {{{ChatTemplateKind::kKimiK2, "kimi-k2"},
                                             {ChatTemplateKind::kKimiK2Thinking, "kimi-k2-thinking"},
                                             {ChatTemplateKind::kKimiK25, "kimi-k2.5"},
                                             {ChatTemplateKind::kKimiK26, "kimi-k2.6"}}};

constexpr const char* kDefaultSystemText = "You are Kimi, an AI assistant created by Moonshot AI.";

// Collects segments; texts that follow each other become one.
class PromptWriter {
 public:
  void marker(std::string_view text) { segments_.push_back({std::string(text), true}); }
  void text(std::string_view text) {
    if (text.empty()) return;
    if (segments_.empty() || segments_.back().is_marker) segments_.push_back({});
    segments_.back().text += text;
  }
  void open_turn(std::string_view role, std::string_view name) {
    marker(role == "user" ? "<|im_user|>" : role == "assistant" ? "<|im_assistant|>" : "<|im_system|>");
    text(name.empty() ? role : name);
    marker("<|im_middle|>");
  }
  void reasoning(std::string_view reasoning_text) {
    marker("<think>");
    text(reasoning_text);
    marker("</think>");
  }
  void close_turn() { marker("<|im_end|>"); }
  std::vector<PromptSegment> take() { return std::move(segments_); }

 private:
  std::vector<PromptSegment> segments_;
};

bool starts_with_system(const std::vector<ChatMessage>& messages) {
  return !messages.empty() && messages.front().role == "system";
}

void write_default_system(ChatTemplateKind kind, const std::vector<ChatMessage>& messages, PromptWriter& writer) {
  const bool is_injected = kind == ChatTemplateKind::kKimiK2
                               ? !messages.empty() && !starts_with_system(messages)
                               : kind == ChatTemplateKind::kKimiK2Thinking && !starts_with_system(messages);
  if (!is_injected) return;
  writer.open_turn("system", "");
  writer.text(kDefaultSystemText);
  writer.close_turn();
  if (kind == ChatTemplateKind::kKimiK2) writer.text("\n");
}

// Without tool calls every assistant turn up to the last one is history, whose reasoning only kimi-k2.6 keeps, when
// asked.
void write_reasoning(ChatTemplateKind kind, const ChatMessage& message, const ChatOptions& options,
                     PromptWriter& writer) {
  if (kind == ChatTemplateKind::kKimiK2 || message.role != "assistant") return;
  const bool ignores_options = kind == ChatTemplateKind::kKimiK2Thinking;
  const bool is_kept =
      kind == ChatTemplateKind::kKimiK26 && options.preserve_thinking && (options.thinking || ignores_options);
  writer.reasoning(is_kept ? std::string_view(message.reasoning_content) : std::string_view());
}

void write_generation_prompt(ChatTemplateKind kind, const ChatOptions& options, PromptWriter& writer) {
  writer.open_turn("assistant", "");
  if (kind != ChatTemplateKind::kKimiK25 && kind != ChatTemplateKind::kKimiK26) return;
  writer.marker("<think>");
  if (!options.thinking) writer.marker("</think>");
}

}  // namespace

std::string_view name_of(ChatTemplateKind kind) {
  for (const KindName& known : kNames) {
    if (known.kind == kind) return known.name;
  }
  return "unknown";
}

Result<ChatTemplateKind> parse_chat_template(std::string_view name, bool has_vision_part) {
  if (name == "auto") return has_vision_part ? ChatTemplateKind::kKimiK26 : ChatTemplateKind::kKimiK2;
  for (const KindName& known : kNames) {
    if (known.name == name) return known.kind;
  }
  return fail(Error::invalid(
      fmt::format("--chat-template {} is not known. Known: auto, kimi-k2, kimi-k2-thinking, kimi-k2.5, kimi-k2.6.",
                  name),
      "--chat-template"));
}

std::vector<PromptSegment> render_chat(ChatTemplateKind kind, const std::vector<ChatMessage>& messages,
                                       const ChatOptions& options) {
  PromptWriter writer;
  write_default_system(kind, messages, writer);
  for (const ChatMessage& message : messages) {
    writer.open_turn(message.role, message.name);
    write_reasoning(kind, message, options, writer);
    writer.text(message.content);
    if (options.continue_final_message && &message == &messages.back()) return writer.take();
    writer.close_turn();
  }
  if (options.add_generation_prompt) write_generation_prompt(kind, options, writer);
  return writer.take();
}

std::string join_segments(const std::vector<PromptSegment>& segments) {
  std::string text;
  for (const PromptSegment& segment : segments) text += segment.text;
  return text;
}

std::vector<TokenId> encode_segments(const std::vector<PromptSegment>& segments, const Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  std::string text;
  const auto encode_text = [&] {
    const std::vector<TokenId> encoded = tokenizer.encode(text, SpecialTokens::kAsText);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
    text.clear();
  };
  for (const PromptSegment& segment : segments) {
    const auto id = segment.is_marker ? tokenizer.special_id(segment.text) : std::nullopt;
    if (!id) {  // ordinary text, or a marker that this vocabulary does not have
      text += segment.text;
      continue;
    }
    encode_text();
    ids.push_back(*id);
  }
  encode_text();
  return ids;
}

}  // namespace gimbal
