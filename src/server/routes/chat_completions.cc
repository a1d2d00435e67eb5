// POST /v1/chat/completions: answers a conversation of plain text turns.
#include <fmt/format.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "conversation/chat_request.h"
#include "server/routes/generation_request.h"
#include "server/routes/openai_answer.h"
#include "server/routes/route_list.h"

namespace gimbal {
namespace {

namespace asio = boost::asio;

// What read_chat_request reads.
constexpr std::array<std::string_view, 5> kConversationFields = {"messages", "tools", "chat_template_kwargs",
                                                                 "add_generation_prompt", "continue_final_message"};

constexpr int64_t kMostTopLogProbs = 20;

void read_log_probabilities(FieldReader& fields, GenerationOptions& options) {
  options.wants_log_probability = fields.boolean("logprobs", false);
  const auto top = fields.optional_integer("top_logprobs", 0, kMostTopLogProbs);
  options.num_top_logits = top.value_or(0);
  if (options.num_top_logits > 0 && !options.wants_log_probability)
    fields.refuse("top_logprobs", "needs logprobs true");
}

void refuse_chat_extras(FieldReader& fields) {
  fields.only_absent("prompt_logprobs");
  fields.only_boolean("echo", false);
  fields.only_absent("modalities");
  fields.only_absent("audio");
  fields.only_absent("reasoning_effort");
  const auto tool_choice = fields.find("tool_choice");
  if (tool_choice != nullptr && *tool_choice != "none" && *tool_choice != "auto")
    fields.refuse("tool_choice", "tools are not supported by this build; leave the field out");
}

asio::awaitable<Result<std::vector<TokenId>>> encode_chat(ServerContext& server,
                                                          const std::vector<PromptSegment>& segments) {
  uint64_t bytes = 0;
  for (const PromptSegment& segment : segments) bytes += segment.text.size();
  const int64_t least = server.tokenizer->min_tokens_for(bytes);
  if (least >= server.context_length) {
    co_return fail(Error::invalid(fmt::format("The conversation has {} bytes, which is at least {} tokens, but the "
                                              "context length is {} tokens for prompt and "
                                              "answer together. Shorten it.",
                                              bytes, least, server.context_length.load()),
                                  "messages"));
  }
  co_return co_await asio::co_spawn(
      server.workers,
      [&]() -> asio::awaitable<std::vector<TokenId>> { co_return encode_segments(segments, *server.tokenizer); },
      asio::use_awaitable);
}

}  // namespace

asio::awaitable<void> handle_chat_completions(Exchange& exchange) {
  ServerContext& server = exchange.server();
  const auto body = read_body(exchange.request());
  if (!body) co_return co_await exchange.send_error(body.error());
  FieldReader fields(*body);
  if (const auto wrong_model = check_model(fields, server)) co_return co_await exchange.send_error(*wrong_model);
  OpenAiRequest request = read_openai_fields(fields, server);
  read_log_probabilities(fields, request.options);
  refuse_chat_extras(fields);
  fields.ignore(kConversationFields);
  fields.refuse_unknown();
  if (fields.error()) co_return co_await exchange.send_error(*fields.error());
  const auto chat = read_chat_request(*body);
  if (!chat) co_return co_await exchange.send_error(chat.error());
  if (server.gateway == nullptr) co_return co_await exchange.send_error(not_ready(server));
  const std::vector<PromptSegment> segments = render_chat(server.chat_template, chat->messages, chat->options);
  auto ids = co_await encode_chat(server, segments);
  if (!ids) co_return co_await exchange.send_error(ids.error());
  OpenAiAnswer form{.is_chat = true,
                    .stream = request.stream,
                    .include_usage = request.include_usage,
                    .continuous_usage = request.continuous_usage,
                    .log_probabilities = request.options.wants_log_probability,
                    .num_choices = request.num_choices};
  GenerationStart start{.options = std::move(request.options),
                        .max_tokens = request.max_tokens,
                        .default_max_tokens = server.context_length,
                        .num_choices = request.num_choices};
  start.prompts.push_back(std::move(*ids));
  auto generation = start_generation(exchange, std::move(start));
  if (!generation) co_return co_await exchange.send_error(generation.error());
  const auto names = name_choices(server, **generation, names_of(request), request.num_choices);
  co_await answer_openai(exchange, std::move(*generation), std::move(form));
}

}  // namespace gimbal
