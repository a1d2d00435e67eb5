#include "server/routes/openai_answer.h"

#include <chrono>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "server/routes/generation_request.h"

namespace gimbal {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;

// The parts that all objects of one answer share.
class AnswerForm {
 public:
  AnswerForm(const Exchange& exchange, const std::string& model, OpenAiAnswer form)
      : form_(form),
        id_((form.is_chat ? "chatcmpl-" : "cmpl-") + exchange.request_id()),
        model_(model),
        created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                     .count()) {}

  json::object whole(std::string text, const GenerationPiece& last, json::object usage) const {
    json::object choice{{"index", 0}};
    if (form_.is_chat) {
      choice["message"] = {{"role", "assistant"}, {"content", std::move(text)}};
    } else {
      choice["text"] = std::move(text);
    }
    finish_choice(choice, &last);
    json::object body = head(form_.is_chat ? "chat.completion" : "text_completion");
    body["choices"] = json::array{std::move(choice)};
    body["usage"] = std::move(usage);
    return body;
  }

  // A piece of a stream; `last` is null before the end.
  std::string chunk(const std::string& text, bool is_first, const GenerationPiece* last) const {
    json::object choice{{"index", 0}};
    if (form_.is_chat) {
      json::object delta;
      if (is_first) delta["role"] = "assistant";
      if (is_first || !text.empty()) delta["content"] = text;
      choice["delta"] = std::move(delta);
    } else {
      choice["text"] = text;
    }
    finish_choice(choice, last);
    json::object body = head(form_.is_chat ? "chat.completion.chunk" : "text_completion");
    body["choices"] = json::array{std::move(choice)};
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

  static void finish_choice(json::object& choice, const GenerationPiece* last) {
    choice["logprobs"] = nullptr;
    choice["finish_reason"] = last == nullptr ? json::value(nullptr) : json::value(name_of(*last->finish));
    if (last != nullptr) choice["matched_stop"] = matched_stop_of(*last);
  }

  OpenAiAnswer form_;
  std::string id_;
  std::string model_;
  int64_t created_;
};

asio::awaitable<void> send_whole(Exchange& exchange, Generation& generation, const AnswerForm& form) {
  std::string text;
  while (true) {
    const GenerationPiece piece = co_await generation.next(exchange.stream().socket());
    if (piece.error) co_return co_await exchange.send_error(*piece.error);
    text += piece.text;
    exchange.completion_tokens = static_cast<int64_t>(generation.output_ids().size());
    if (!piece.finish) continue;
    co_return co_await exchange.send_json(
        boost::beast::http::status::ok,
        form.whole(std::move(text), piece, usage_of(exchange.prompt_tokens, exchange.completion_tokens)));
  }
}

asio::awaitable<void> send_stream(Exchange& exchange, Generation& generation, const AnswerForm& form,
                                  OpenAiAnswer kind) {
  co_await exchange.start_events();
  bool is_first = true;
  if (kind.is_chat) {  // the role comes at once, so that clients see that the request lives
    co_await exchange.send_event(form.chunk("", true, nullptr));
    is_first = false;
  }
  while (true) {
    const GenerationPiece piece = co_await generation.next(exchange.stream().socket());
    exchange.completion_tokens = static_cast<int64_t>(generation.output_ids().size());
    if (piece.error) {
      co_await exchange.send_event(json::serialize(error_body(to_http_error(*piece.error))));
      co_return co_await exchange.finish_events();
    }
    if (!piece.text.empty()) {
      co_await exchange.send_event(form.chunk(piece.text, is_first, nullptr));
      is_first = false;
    }
    if (!piece.finish) continue;
    co_await exchange.send_event(form.chunk("", false, &piece));
    if (kind.include_usage)
      co_await exchange.send_event(form.usage_chunk(usage_of(exchange.prompt_tokens, exchange.completion_tokens)));
    co_await exchange.send_event("[DONE]");
    co_return co_await exchange.finish_events();
  }
}

}  // namespace

asio::awaitable<void> answer_openai(Exchange& exchange, std::unique_ptr<Generation> generation, OpenAiAnswer form) {
  const AnswerForm shape(exchange, exchange.server().served_model_name, form);
  if (form.stream) {
    co_await send_stream(exchange, *generation, shape, form);
  } else {
    co_await send_whole(exchange, *generation, shape);
  }
}

}  // namespace gimbal
