// POST /v1/tokenize and /v1/detokenize.
#include <fmt/format.h>

#include <boost/json/array.hpp>

#include "server/routes/generation_request.h"
#include "server/routes/route_list.h"
#include "tokenizer/incremental_detokenizer.h"

namespace gimbal {
namespace {

constexpr size_t kMostIds = 1 << 20;

boost::json::object ids_body(const std::vector<TokenId>& ids, int64_t max_model_len) {
  boost::json::object body;
  body["tokens"] = boost::json::array(ids.begin(), ids.end());
  body["count"] = ids.size();
  body["max_model_len"] = max_model_len;
  return body;
}

boost::json::object text_body(std::string text) {
  boost::json::object body;
  body["text"] = text;
  body["prompt"] = std::move(text);
  return body;
}

}  // namespace

boost::asio::awaitable<void> handle_tokenize(Exchange& exchange) {
  ServerContext& server = exchange.server();
  const auto body = read_body(exchange.request());
  if (!body) co_return co_await exchange.send_error(body.error());
  FieldReader fields(*body);
  auto text = fields.text("prompt");
  if (!text) text = fields.text("text");
  if (!text) fields.refuse("prompt", "is missing; a string is needed");
  constexpr std::string_view kIgnored[] = {"model", "add_special_tokens"};
  fields.ignore(kIgnored);
  fields.refuse_unknown();
  if (fields.error()) co_return co_await exchange.send_error(*fields.error());
  const std::vector<TokenId> ids = co_await encode_on_workers(server, std::move(*text));
  co_await exchange.send_json(boost::beast::http::status::ok, ids_body(ids, server.context_length));
}

boost::asio::awaitable<void> handle_detokenize(Exchange& exchange) {
  ServerContext& server = exchange.server();
  const auto body = read_body(exchange.request());
  if (!body) co_return co_await exchange.send_error(body.error());
  FieldReader fields(*body);
  if (fields.find("tokens") == nullptr) fields.refuse("tokens", "is missing; a list of ids is needed");
  const std::vector<TokenId> ids = fields.token_ids("tokens", server.vocab_size, kMostIds);
  const bool skip_special_tokens = fields.boolean("skip_special_tokens", false);
  constexpr std::string_view kIgnored[] = {"model"};
  fields.ignore(kIgnored);
  fields.refuse_unknown();
  if (fields.error()) co_return co_await exchange.send_error(*fields.error());
  IncrementalDetokenizer detokenizer(*server.tokenizer, skip_special_tokens);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.append(id);
  text += detokenizer.flush();
  co_await exchange.send_json(boost::beast::http::status::ok, text_body(std::move(text)));
}

}  // namespace gimbal
