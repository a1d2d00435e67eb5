// POST /v1/completions: continues a prompt given as text or ids.
#include <fmt/format.h>

#include <algorithm>

#include "server/routes/generation_request.h"
#include "server/routes/openai_answer.h"
#include "server/routes/route_list.h"
#include "tokenizer/incremental_detokenizer.h"

namespace gimbal {
namespace {

namespace asio = boost::asio;

constexpr int64_t kDefaultMaxTokens = 16;

constexpr size_t kMostPrompts = 256;
constexpr int64_t kMostLogProbs = 20;

// The prompts as they stand in the body: texts, or ids.
struct Prompts {
  std::vector<std::string> texts;  // one of the two has entries
  std::vector<std::vector<TokenId>> ids;
};

std::vector<TokenId> read_ids(FieldReader& fields, const boost::json::array& list, const ServerContext& server) {
  std::vector<TokenId> ids;
  if (list.empty()) fields.refuse("prompt", "is empty; at least one token is needed");
  for (const boost::json::value& id : list) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= server.vocab_size) {
      fields.refuse("prompt",
                    fmt::format("holds {}, which is not an id of the vocabulary of {} ids",
                                id.is_int64() ? fmt::format("{}", id.get_int64()) : "a value", server.vocab_size));
      return {};
    }
    ids.push_back(static_cast<TokenId>(id.get_int64()));
  }
  return ids;
}

void read_prompt_list(FieldReader& fields, const boost::json::array& list, const ServerContext& server,
                      Prompts& prompts) {
  if (list.empty()) return fields.refuse("prompt", "is empty; at least one token is needed");
  if (list[0].is_number()) return prompts.ids.push_back(read_ids(fields, list, server));
  if (list.size() > kMostPrompts)
    return fields.refuse("prompt", fmt::format("holds {} prompts, at most {} are taken", list.size(), kMostPrompts));
  for (const boost::json::value& entry : list) {
    if (entry.kind() != list[0].kind()) return fields.refuse("prompt", "mixes texts, ids and lists");
    if (entry.is_string()) {
      prompts.texts.emplace_back(entry.get_string());
    } else if (entry.is_array()) {
      prompts.ids.push_back(read_ids(fields, entry.get_array(), server));
    } else {
      return fields.refuse("prompt", "must be a string, a list of token ids, or a list of one of these");
    }
  }
}

Prompts read_prompts(FieldReader& fields, const ServerContext& server) {
  const boost::json::value* value = fields.find("prompt");
  Prompts prompts;
  if (value == nullptr) {
    fields.refuse("prompt", "is missing; a string or a list of token ids is needed");
  } else if (value->is_string()) {
    prompts.texts.emplace_back(value->get_string());
  } else if (value->is_array()) {
    read_prompt_list(fields, value->get_array(), server, prompts);
  } else {
    fields.refuse("prompt", "must be a string or a list of token ids");
  }
  for (const std::string& text : prompts.texts) {
    if (text.empty()) fields.refuse("prompt", "is empty; at least one token is needed");
  }
  return prompts;
}

// logprobs, echo, prompt_logprobs.
void read_scores(FieldReader& fields, GenerationOptions& options, OpenAiAnswer& form) {
  const auto top = fields.optional_integer("logprobs", 0, kMostLogProbs);
  const auto prompt_top = fields.optional_integer("prompt_logprobs", 0, kMostLogProbs);
  form.echo = fields.boolean("echo", false);
  form.log_probabilities = top.has_value();
  form.prompt_scores = prompt_top.has_value();
  options.wants_log_probability = top.has_value();
  options.num_top_logits = std::max(top.value_or(0), prompt_top.value_or(0));
  if (prompt_top || (form.echo && top)) options.first_scored = 0;
  if (form.prompt_scores && form.stream)
    fields.refuse("prompt_logprobs", "comes with whole answers only; leave stream out");
}

std::string text_of(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  IncrementalDetokenizer detokenizer(tokenizer, /*skip_special_tokens=*/false);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.append(id);
  return text + detokenizer.flush();
}

}  // namespace

asio::awaitable<void> handle_completions(Exchange& exchange) {
  ServerContext& server = exchange.server();
  const auto body = read_body(exchange.request());
  if (!body) co_return co_await exchange.send_error(body.error());
  FieldReader fields(*body);
  if (const auto wrong_model = check_model(fields, server)) co_return co_await exchange.send_error(*wrong_model);
  OpenAiRequest request = read_openai_fields(fields, server);
  OpenAiAnswer form{.stream = request.stream,
                    .include_usage = request.include_usage,
                    .continuous_usage = request.continuous_usage,
                    .num_choices = request.num_choices};
  read_scores(fields, request.options, form);
  Prompts prompts = read_prompts(fields, server);
  fields.refuse_unknown();
  if (fields.error()) co_return co_await exchange.send_error(*fields.error());
  if (server.gateway == nullptr) co_return co_await exchange.send_error(not_ready(server));
  for (std::string& text : prompts.texts) {
    auto ids = co_await encode_text(server, text);
    if (!ids) co_return co_await exchange.send_error(ids.error());
    prompts.ids.push_back(std::move(*ids));
    if (form.echo) form.echo_texts.push_back(std::move(text));
  }
  if (form.echo && form.echo_texts.empty()) {
    for (const std::vector<TokenId>& ids : prompts.ids) form.echo_texts.push_back(text_of(*server.tokenizer, ids));
  }
  form.prompts = prompts.ids;
  auto generation = start_generation(exchange, {.prompts = std::move(prompts.ids),
                                                .options = std::move(request.options),
                                                .max_tokens = request.max_tokens,
                                                .default_max_tokens = kDefaultMaxTokens,
                                                .num_choices = request.num_choices});
  if (!generation) co_return co_await exchange.send_error(generation.error());
  const auto names = name_choices(server, **generation, names_of(request), request.num_choices);
  co_await answer_openai(exchange, std::move(*generation), std::move(form));
}

}  // namespace gimbal
