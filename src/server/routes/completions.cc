// POST /v1/completions: continues a prompt given as text or ids.
#include <fmt/format.h>

#include "server/routes/generation_request.h"
#include "server/routes/openai_answer.h"
#include "server/routes/route_list.h"

namespace gimbal {
namespace {

namespace asio = boost::asio;

constexpr int64_t kDefaultMaxTokens = 16;

// The prompt as it stands in the body: a text, or ids.
struct Prompt {
  std::optional<std::string> text;
  std::vector<TokenId> ids;
};

Prompt read_prompt(FieldReader& fields, const ServerContext& server) {
  const boost::json::value* value = fields.find("prompt");
  Prompt prompt;
  if (value == nullptr) {
    fields.refuse("prompt", "is missing; a string or a list of token ids is needed");
    return prompt;
  }
  if (value->is_array() && value->get_array().size() == 1 && !value->get_array()[0].is_number())
    value = &value->get_array()[0];
  if (value->is_string()) {
    prompt.text = std::string(value->get_string());
    if (prompt.text->empty()) fields.refuse("prompt", "is empty; at least one token is needed");
    return prompt;
  }
  if (!value->is_array()) {
    fields.refuse("prompt", "must be a string or a list of token ids");
    return prompt;
  }
  if (value->get_array().empty()) fields.refuse("prompt", "is empty; at least one token is needed");
  for (const boost::json::value& id : value->get_array()) {
    if (id.is_string() || id.is_array()) {
      fields.refuse("prompt",
                    fmt::format("holds {} prompts; this build takes one a request", value->get_array().size()));
      return prompt;
    }
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= server.vocab_size) {
      fields.refuse("prompt",
                    fmt::format("holds {}, which is not an id of the vocabulary of {} ids",
                                id.is_int64() ? fmt::format("{}", id.get_int64()) : "a value", server.vocab_size));
      return prompt;
    }
    prompt.ids.push_back(static_cast<TokenId>(id.get_int64()));
  }
  return prompt;
}

}  // namespace

asio::awaitable<void> handle_completions(Exchange& exchange) {
  ServerContext& server = exchange.server();
  const auto body = read_body(exchange.request());
  if (!body) co_return co_await exchange.send_error(body.error());
  FieldReader fields(*body);
  if (const auto wrong_model = check_model(fields, server)) co_return co_await exchange.send_error(*wrong_model);
  OpenAiRequest request = read_openai_fields(fields, server);
  fields.only_absent("logprobs");
  Prompt prompt = read_prompt(fields, server);
  fields.refuse_unknown();
  if (fields.error()) co_return co_await exchange.send_error(*fields.error());
  if (server.gateway == nullptr) co_return co_await exchange.send_error(not_ready(server));
  if (prompt.text) {
    auto ids = co_await encode_text(server, std::move(*prompt.text));
    if (!ids) co_return co_await exchange.send_error(ids.error());
    prompt.ids = std::move(*ids);
  }
  auto generation = start_generation(exchange, {.prompt_ids = std::move(prompt.ids),
                                                .options = std::move(request.options),
                                                .max_tokens = request.max_tokens,
                                                .default_max_tokens = kDefaultMaxTokens,
                                                .request_id = exchange.request_id()});
  if (!generation) co_return co_await exchange.send_error(generation.error());
  co_await answer_openai(exchange, std::move(*generation),
                         {.is_chat = false, .stream = request.stream, .include_usage = request.include_usage});
}

}  // namespace gimbal
