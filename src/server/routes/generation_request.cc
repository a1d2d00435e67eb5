#include "server/routes/generation_request.h"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <random>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "base/json_reading.h"

namespace gimbal {
namespace {

namespace asio = boost::asio;

constexpr int64_t kAnyInteger = std::numeric_limits<int64_t>::max();
constexpr size_t kMostStops = 16;
constexpr size_t kLongestStop = 1024;

// Fields that do not change the answer.
constexpr std::array<std::string_view, 8> kHarmless = {
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls", "rid"};

uint64_t random_seed() {
  std::random_device random;
  return static_cast<uint64_t>(random()) << 32 | random();
}

void check_stops(FieldReader& fields, const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) {
    if (stop.empty() || stop.size() > kLongestStop)
      fields.refuse("stop", fmt::format("each text must have 1 to {} bytes", kLongestStop));
  }
}

void refuse_what_is_not_offered(FieldReader& fields) {
  fields.only_number("best_of", 1);
  for (const char* key :
       {"response_format", "functions", "lora_path", "suffix", "guided_json", "return_hidden_states"}) {
    fields.only_absent(key);
  }
  fields.only_boolean("echo", false);
}

}  // namespace

GenerationOptions read_generation_options(FieldReader& fields, const ServerContext& server,
                                          const SamplingFieldForm& form) {
  GenerationOptions options;
  SamplingOptions& sampling = options.sampling;
  sampling.temperature =
      static_cast<float>(fields.number("temperature", server.defaults.temperature, 0, form.largest_temperature));
  sampling.top_p = static_cast<float>(fields.number("top_p", server.defaults.top_p, 1e-9, 1));
  const int64_t top_k = fields.integer("top_k", server.defaults.top_k, -1, std::numeric_limits<int32_t>::max());
  sampling.top_k = static_cast<int32_t>(std::max<int64_t>(0, top_k));
  sampling.min_p = static_cast<float>(fields.number("min_p", 0, 0, 1));
  const auto seed = fields.optional_integer(form.seed, std::numeric_limits<int64_t>::min(), kAnyInteger);
  sampling.seed = seed ? static_cast<uint64_t>(*seed) : random_seed();
  sampling.min_new_tokens = fields.integer(form.min_tokens, 0, 0, kAnyInteger);
  sampling.ignore_eos = fields.boolean("ignore_eos", false);
  sampling.stop_token_ids = fields.token_ids("stop_token_ids", server.vocab_size, 256);
  options.stop = fields.texts("stop", kMostStops);
  check_stops(fields, options.stop);
  options.skip_special_tokens = fields.boolean("skip_special_tokens", true);
  fields.only_number("n", 1);
  fields.only_number("frequency_penalty", 0);
  fields.only_number("presence_penalty", 0);
  fields.only_number("repetition_penalty", 1);
  for (const char* key : {"logit_bias", "regex", "ebnf", "json_schema"}) fields.only_absent(key);
  return options;
}

OpenAiRequest read_openai_fields(FieldReader& fields, const ServerContext& server) {
  OpenAiRequest request;
  request.options = read_generation_options(fields, server, {});
  const auto max_tokens = fields.optional_integer("max_tokens", 1, kAnyInteger);
  const auto max_completion_tokens = fields.optional_integer("max_completion_tokens", 1, kAnyInteger);
  request.max_tokens = max_completion_tokens ? max_completion_tokens : max_tokens;
  request.stream = fields.boolean("stream", false);
  if (const boost::json::value* options = fields.find("stream_options")) {
    if (!options->is_object()) {
      fields.refuse("stream_options", "must be an object");
    } else {
      FieldReader inner(options->get_object(), "stream_options.");
      request.include_usage = inner.boolean("include_usage", false);
      inner.only_boolean("continuous_usage_stats", false);
      inner.refuse_unknown();
      if (inner.error()) fields.refuse("stream_options", inner.error()->message);
    }
  }
  refuse_what_is_not_offered(fields);
  fields.ignore(kHarmless);
  return request;
}

Result<boost::json::object> read_body(const HttpRequest& request) {
  GIMBAL_ASSIGN_OR_RETURN(boost::json::value value, parse_json(request.body(), "The request body"));
  if (!value.is_object()) return fail(Error::invalid("The request body must be a JSON object."));
  return std::move(value.get_object());
}

std::optional<HttpError> check_model(FieldReader& fields, const ServerContext& server) {
  const auto model = fields.text("model");
  if (fields.error()) return to_http_error(*fields.error());
  if (!model)
    return to_http_error(
        Error::invalid(fmt::format("model: is missing; this server has '{}'.", server.served_model_name), "model"));
  if (*model == server.served_model_name) return std::nullopt;
  return HttpError{
      .status = boost::beast::http::status::not_found,
      .type = "invalid_request_error",
      .code = "model_not_found",
      .message = fmt::format("model: '{}' is not served here; this server has '{}'.", *model, server.served_model_name),
      .parameter = "model"};
}

asio::awaitable<Result<std::vector<TokenId>>> encode_text(ServerContext& server, std::string text) {
  constexpr size_t kShortText = 4096;
  const int64_t least = server.tokenizer->min_tokens_for(text.size());
  if (least >= server.context_length) {
    co_return fail(Error::invalid(fmt::format("The prompt has {} bytes, which is at least {} tokens, but the context "
                                              "length is {} tokens for prompt and answer "
                                              "together. Shorten the prompt.",
                                              text.size(), least, server.context_length.load()),
                                  "prompt"));
  }
  // The caller of these routes writes the whole prompt, template markers included.
  if (text.size() <= kShortText) co_return server.tokenizer->encode(text, SpecialTokens::kRecognized);
  co_return co_await asio::co_spawn(
      server.workers,
      [&server, &text]() -> asio::awaitable<std::vector<TokenId>> {
        co_return server.tokenizer->encode(text, SpecialTokens::kRecognized);
      },
      asio::use_awaitable);
}

Result<std::unique_ptr<Generation>> start_generation(Exchange& exchange, GenerationStart start) {
  ServerContext& server = exchange.server();
  RequestGateway* gateway = server.gateway;
  if (gateway == nullptr) return fail(Error::unavailable(not_ready(server).message));
  const int64_t room = server.context_length - static_cast<int64_t>(start.prompt_ids.size());
  start.options.sampling.max_new_tokens =
      start.max_tokens ? *start.max_tokens : std::max<int64_t>(1, std::min(start.default_max_tokens, room));
  exchange.prompt_tokens += static_cast<int64_t>(start.prompt_ids.size());
  auto generation = std::make_unique<Generation>(exchange.stream().get_executor(), *gateway, *server.tokenizer,
                                                 std::move(start.options));
  GIMBAL_RETURN_IF_ERROR(generation->submit(start.request_id, std::move(start.prompt_ids)));
  return generation;
}

HttpError not_ready(const ServerContext& server) {
  return to_http_error(Error::unavailable(server.is_stopping
                                              ? "The server is stopping and takes no new requests."
                                              : "The model is still being loaded. Try again in a moment."));
}

boost::json::object usage_of(int64_t prompt_tokens, int64_t completion_tokens) {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens}};
}

boost::json::value matched_stop_of(const GenerationPiece& piece) {
  if (piece.matched_stop) return boost::json::value(*piece.matched_stop);
  if (piece.matched_stop_token) return boost::json::value(*piece.matched_stop_token);
  return nullptr;
}

}  // namespace gimbal
