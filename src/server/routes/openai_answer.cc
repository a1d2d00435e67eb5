#include "server/routes/openai_answer.h"

#include <chrono>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "server/routes/generation_request.h"
#include "server/routes/token_scores.h"

namespace gimbal {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;

// A stream that has nothing to say for so long says so.
constexpr std::chrono::milliseconds kKeepAlive(15000);

// What has come of one choice and was not sent yet.
struct ChoiceText {
  std::string text = {};
  std::vector<ScoredToken> tokens = {};
  std::vector<RowScore> prompt_rows = {};
  std::optional<GenerationPiece> last = {};
  int64_t offset = 0;  // characters before the next token
  bool has_begun = false;

  void take(const GenerationPiece& piece, bool wants_tokens) {
    text += piece.text;
    prompt_rows.insert(prompt_rows.end(), piece.prompt_scores.begin(), piece.prompt_scores.end());
    if (wants_tokens && piece.token_id && !piece.is_end_token)
      tokens.push_back({.id = *piece.token_id, .log_probability = piece.log_probability, .row = piece.score});
    if (piece.finish) last = piece;
  }
};

// Builds the objects of one answer.
class AnswerForm {
 public:
  AnswerForm(const Exchange& exchange, const ServerContext& server, const OpenAiAnswer& form)
      : form_(form),
        tokenizer_(*server.tokenizer),
        id_((form.is_chat ? "chatcmpl-" : "cmpl-") + exchange.request_id()),
        model_(server.served_model_name),
        created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                     .count()) {}

  json::object whole(std::vector<ChoiceText>& texts, json::object usage) const {
    json::array choices;
    for (size_t index = 0; index < texts.size(); ++index) {
      ChoiceText& choice = texts[index];
      json::object object{{"index", index}};
      if (form_.prompt_scores)
        object["prompt_logprobs"] = prompt_log_probabilities(tokenizer_, prompt_tokens(index, choice));
      json::value log_probabilities = take_log_probabilities(index, choice);
      if (form_.is_chat) {
        object["message"] = {{"role", "assistant"}, {"content", std::move(choice.text)}};
      } else {
        object["text"] = echo_of(index) + choice.text;
      }
      finish_choice(object, std::move(log_probabilities), &*choice.last);
      choices.push_back(std::move(object));
    }
    json::object body = head(form_.is_chat ? "chat.completion" : "text_completion");
    body["choices"] = std::move(choices);
    body["usage"] = std::move(usage);
    return body;
  }

  // What is new of a choice, as a chunk of a stream; ends the choice when it has ended.
  std::string chunk(size_t index, ChoiceText& choice, const Generation& generation) const {
    json::object object{{"index", index}};
    json::value log_probabilities = take_log_probabilities(index, choice);
    if (form_.is_chat) {
      json::object delta;
      if (!choice.has_begun) delta["role"] = "assistant";
      if (!choice.has_begun || !choice.text.empty()) delta["content"] = choice.text;
      object["delta"] = std::move(delta);
    } else {
      object["text"] = (choice.has_begun ? "" : echo_of(index)) + choice.text;
    }
    choice.has_begun = true;
    choice.text.clear();
    finish_choice(object, std::move(log_probabilities), choice.last ? &*choice.last : nullptr);
    json::object body = head(form_.is_chat ? "chat.completion.chunk" : "text_completion");
    body["choices"] = json::array{std::move(object)};
    if (form_.continuous_usage) body["usage"] = usage_of(generation);
    return json::serialize(body);
  }

  std::string usage_chunk(json::object usage) const {
    json::object body = head(form_.is_chat ? "chat.completion.chunk" : "text_completion");
    body["choices"] = json::array{};
    body["usage"] = std::move(usage);
    return json::serialize(body);
  }

 private:
  json::object head(const char* object) const {
    return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
  }

  size_t prompt_of(size_t index) const { return index / static_cast<size_t>(form_.num_choices); }
  std::string echo_of(size_t index) const { return form_.echo ? form_.echo_texts[prompt_of(index)] : std::string(); }

  std::vector<ScoredToken> prompt_tokens(size_t index, const ChoiceText& choice) const {
    return score_prompt(form_.prompts[prompt_of(index)], 0, choice.prompt_rows);
  }

  // Of the tokens that were not sent yet.
  json::value take_log_probabilities(size_t index, ChoiceText& choice) const {
    if (!form_.log_probabilities) return nullptr;
    std::vector<ScoredToken> tokens = std::exchange(choice.tokens, {});
    if (form_.is_chat) {
      json::array content;
      for (const ScoredToken& token : tokens) content.push_back(chat_token(tokenizer_, token));
      return {{"content", std::move(content)}, {"refusal", nullptr}};
    }
    if (form_.echo && !choice.has_begun) {
      std::vector<ScoredToken> all = prompt_tokens(index, choice);
      all.insert(all.end(), tokens.begin(), tokens.end());
      tokens = std::move(all);
    }
    return completion_tokens(tokenizer_, tokens, choice.offset);
  }

  static void finish_choice(json::object& choice, json::value log_probabilities, const GenerationPiece* last) {
    choice["logprobs"] = std::move(log_probabilities);
    choice["finish_reason"] = last == nullptr ? json::value(nullptr) : json::value(name_of(*last->finish));
    if (last != nullptr) choice["matched_stop"] = matched_stop_of(*last);
  }

  const OpenAiAnswer& form_;
  const Tokenizer& tokenizer_;
  std::string id_;
  std::string model_;
  int64_t created_;
};

asio::awaitable<void> send_whole(Exchange& exchange, Generation& generation, const AnswerForm& shape,
                                 const OpenAiAnswer& form) {
  std::vector<ChoiceText> texts(generation.choices().size());
  while (!generation.is_ended()) {
    const GenerationPiece piece = co_await generation.next(exchange.stream());
    exchange.completion_tokens = generation.completion_tokens();
    if (piece.error) co_return co_await exchange.send_error(*piece.error);
    texts[piece.choice].take(piece, form.log_probabilities);
  }
  co_await exchange.send_json(boost::beast::http::status::ok, shape.whole(texts, usage_of(generation)));
}

asio::awaitable<void> send_stream(Exchange& exchange, Generation& generation, const AnswerForm& shape,
                                  const OpenAiAnswer& form) {
  co_await exchange.start_events();
  std::vector<ChoiceText> texts(generation.choices().size());
  // The role comes at once, so that clients see that the request lives.
  for (size_t index = 0; form.is_chat && index < texts.size(); ++index)
    co_await exchange.send_event(shape.chunk(index, texts[index], generation));
  while (!generation.is_ended()) {
    const std::optional<GenerationPiece> piece = co_await generation.next(exchange.stream(), kKeepAlive);
    if (!piece) {
      co_await exchange.send_comment("waiting");
      continue;
    }
    exchange.completion_tokens = generation.completion_tokens();
    if (piece->error) {
      co_await exchange.send_event(json::serialize(error_body(to_http_error(*piece->error))));
      co_return co_await exchange.finish_events();
    }
    ChoiceText& choice = texts[piece->choice];
    choice.take(*piece, form.log_probabilities);
    const bool must_wait = form.echo && !choice.has_begun && !piece->token_id && !piece->finish;  // prompt scores first
    if (must_wait || (choice.text.empty() && choice.tokens.empty() && !choice.last)) continue;
    co_await exchange.send_event(shape.chunk(piece->choice, choice, generation));
  }
  if (form.include_usage) co_await exchange.send_event(shape.usage_chunk(usage_of(generation)));
  co_await exchange.send_event("[DONE]");
  co_await exchange.finish_events();
}

}  // namespace

asio::awaitable<void> answer_openai(Exchange& exchange, std::unique_ptr<Generation> generation, OpenAiAnswer form) {
  const AnswerForm shape(exchange, exchange.server(), form);
  if (form.stream) {
    co_await send_stream(exchange, *generation, shape, form);
  } else {
    co_await send_whole(exchange, *generation, shape, form);
  }
}

}  // namespace gimbal
