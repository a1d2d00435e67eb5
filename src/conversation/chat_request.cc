#include "conversation/chat_request.h"

#include <fmt/format.h>

namespace gimbal {
namespace {

namespace json = boost::json;

constexpr size_t kMostMessages = 10000;

tl::unexpected<Error> refuse(const std::string& field, const std::string& why) {
  return fail(Error::invalid(fmt::format("{}: {}.", field, why), field));
}

// nullptr when absent or null.
const json::value* find(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Result<std::string> read_text(const json::object& object, std::string_view key, const std::string& path) {
  const json::value* value = find(object, key);
  if (value == nullptr) return std::string();
  if (!value->is_string()) return refuse(fmt::format("{}.{}", path, key), "must be a string");
  return std::string(value->get_string());
}

Result<std::string> read_part(const json::value& part, const std::string& path) {
  if (!part.is_object()) return refuse(path, "must be an object");
  const json::value* type = find(part.get_object(), "type");
  if (type == nullptr || !type->is_string()) return refuse(path + ".type", "must be a string");
  if (type->get_string() != "text") {
    return refuse(path + ".type", fmt::format("'{}' parts are not supported by this build; offered: 'text'",
                                              std::string_view(type->get_string())));
  }
  const json::value* text = find(part.get_object(), "text");
  if (text == nullptr || !text->is_string()) return refuse(path + ".text", "must be a string");
  return std::string(text->get_string());
}

Result<std::string> read_content(const json::object& message, const std::string& path) {
  const json::value* content = find(message, "content");
  if (content == nullptr) return std::string();
  if (content->is_string()) return std::string(content->get_string());
  if (!content->is_array()) return refuse(path + ".content", "must be a string or a list of parts");
  std::string text;
  for (size_t i = 0; i < content->get_array().size(); ++i) {
    GIMBAL_ASSIGN_OR_RETURN(const std::string part,
                            read_part(content->get_array()[i], fmt::format("{}.content[{}]", path, i)));
    text += part;
  }
  return text;
}

Result<ChatMessage> read_message(const json::value& value, const std::string& path) {
  if (!value.is_object()) return refuse(path, "must be an object");
  const json::object& object = value.get_object();
  ChatMessage message;
  GIMBAL_ASSIGN_OR_RETURN(message.role, read_text(object, "role", path));
  if (message.role.empty()) return refuse(path + ".role", "is missing");
  if (message.role == "tool" || message.role == "function")
    return refuse(path + ".role", "tool turns are not supported by this build");
  if (const json::value* calls = find(object, "tool_calls")) {
    if (!calls->is_array() || !calls->get_array().empty())
      return refuse(path + ".tool_calls", "tool calls are not supported by this build");
  }
  GIMBAL_ASSIGN_OR_RETURN(message.name, read_text(object, "name", path));
  GIMBAL_ASSIGN_OR_RETURN(message.content, read_content(object, path));
  const char* reasoning_key = find(object, "reasoning_content") != nullptr ? "reasoning_content" : "reasoning";
  GIMBAL_ASSIGN_OR_RETURN(message.reasoning_content, read_text(object, reasoning_key, path));
  return message;
}

Status read_switch(const json::object& object, std::string_view key, const std::string& path, bool& target) {
  const json::value* value = find(object, key);
  if (value == nullptr) return {};
  if (!value->is_bool()) return refuse(fmt::format("{}{}", path, key), "must be true or false");
  target = value->get_bool();
  return {};
}

Status read_options(const json::object& body, ChatOptions& options) {
  GIMBAL_RETURN_IF_ERROR(read_switch(body, "add_generation_prompt", "", options.add_generation_prompt));
  GIMBAL_RETURN_IF_ERROR(read_switch(body, "continue_final_message", "", options.continue_final_message));
  const json::value* kwargs = find(body, "chat_template_kwargs");
  if (kwargs == nullptr) return {};
  if (!kwargs->is_object()) return refuse("chat_template_kwargs", "must be an object");
  const std::string path = "chat_template_kwargs.";
  GIMBAL_RETURN_IF_ERROR(read_switch(kwargs->get_object(), "enable_thinking", path, options.thinking));
  GIMBAL_RETURN_IF_ERROR(read_switch(kwargs->get_object(), "thinking", path, options.thinking));
  GIMBAL_RETURN_IF_ERROR(read_switch(kwargs->get_object(), "preserve_thinking", path, options.preserve_thinking));
  for (const auto& entry : kwargs->get_object()) {
    const std::string_view key = entry.key();
    if (key != "enable_thinking" && key != "thinking" && key != "preserve_thinking" && !entry.value().is_null()) {
      return refuse(path + std::string(key), "is not known; known: thinking, enable_thinking, preserve_thinking");
    }
  }
  return {};
}

}  // namespace

Result<ChatRequest> read_chat_request(const json::object& body) {
  ChatRequest request;
  if (const json::value* tools = find(body, "tools")) {
    if (!tools->is_array() || !tools->get_array().empty())
      return refuse("tools", "tools are not supported by this build");
  }
  const json::value* messages = find(body, "messages");
  if (messages == nullptr) return refuse("messages", "is missing; a list of {\"role\", \"content\"} is needed");
  if (!messages->is_array()) return refuse("messages", "must be a list");
  if (messages->get_array().empty()) return refuse("messages", "is empty; at least one message is needed");
  if (messages->get_array().size() > kMostMessages)
    return refuse("messages",
                  fmt::format("has {} entries; at most {} are taken", messages->get_array().size(), kMostMessages));
  for (size_t i = 0; i < messages->get_array().size(); ++i) {
    GIMBAL_ASSIGN_OR_RETURN(ChatMessage message,
                            read_message(messages->get_array()[i], fmt::format("messages[{}]", i)));
    request.messages.push_back(std::move(message));
  }
  GIMBAL_RETURN_IF_ERROR(read_options(body, request.options));
  if (request.options.continue_final_message) {
    const bool asks_both = find(body, "add_generation_prompt") != nullptr && request.options.add_generation_prompt;
    if (asks_both) return refuse("continue_final_message", "cannot go with add_generation_prompt true");
    if (request.messages.back().role != "assistant")
      return refuse("continue_final_message", "needs a last message of the assistant");
  }
  return request;
}

}  // namespace gimbal
