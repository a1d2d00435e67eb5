#include "server/routes/generation_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
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
constexpr size_t kMostBiases = 1024;
constexpr size_t kLongestName = 256;
constexpr int64_t kMostChoices = 128;
constexpr int64_t kLargestPriority = 1000000;

// Fields that do not change the answer.
constexpr std::array<std::string_view, 7> kHarmless = {
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "parallel_tool_calls"};

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
}

// {"id": bias}: ids as texts, as in OpenAI's API.
std::vector<LogitBias> read_biases(FieldReader& fields, const ServerContext& server) {
  std::vector<LogitBias> biases;
  const boost::json::value* value = fields.find("logit_bias");
  if (value == nullptr) return biases;
  if (!value->is_object() || value->get_object().size() > kMostBiases) {
    fields.refuse("logit_bias", fmt::format("must be an object of at most {} ids with their biases", kMostBiases));
    return biases;
  }
  for (const auto& [key, bias] : value->get_object()) {
    int64_t id = -1;
    const auto [end, code] = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool is_id = code == std::errc() && end == key.data() + key.size() && id >= 0 && id < server.vocab_size;
    const double number = bias.is_number() ? bias.to_number<double>() : std::nan("");
    if (!is_id || !(number >= -100 && number <= 100)) {
      fields.refuse("logit_bias",
                    fmt::format("holds '{}': needed are ids of the vocabulary of {} ids with numbers from "
                                "-100 to 100",
                                std::string_view(key).substr(0, 50), server.vocab_size));
      return {};
    }
    biases.push_back({.id = static_cast<int32_t>(id), .bias = static_cast<float>(number)});
  }
  // "5" and "05" name the same id.
  std::sort(biases.begin(), biases.end(), [](const LogitBias& a, const LogitBias& b) { return a.id < b.id; });
  if (std::adjacent_find(biases.begin(), biases.end(),
                         [](const LogitBias& a, const LogitBias& b) { return a.id == b.id; }) != biases.end())
    fields.refuse("logit_bias", "names an id twice");
  return biases;
}

void read_penalties(FieldReader& fields, SamplingOptions& sampling) {
  sampling.frequency_penalty = static_cast<float>(fields.number("frequency_penalty", 0, -2, 2));
  sampling.presence_penalty = static_cast<float>(fields.number("presence_penalty", 0, -2, 2));
  sampling.repetition_penalty = static_cast<float>(fields.number("repetition_penalty", 1, 0.01, 2));
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
  sampling.biases = read_biases(fields, server);
  read_penalties(fields, sampling);
  options.stop = fields.texts("stop", kMostStops);
  check_stops(fields, options.stop);
  options.skip_special_tokens = fields.boolean("skip_special_tokens", true);
  options.deadline = server.request_deadline;
  for (const char* key : {"regex", "ebnf", "json_schema"}) fields.only_absent(key);
  return options;
}

void read_service_fields(FieldReader& fields, GenerationOptions& options) {
  options.priority = fields.integer("priority", 0, -kLargestPriority, kLargestPriority);
  const auto salt = fields.text("cache_salt");
  if (salt && salt->size() > kLongestName) fields.refuse("cache_salt", "is longer than 256 bytes");
  options.cache_salt = salt.value_or("");
  const auto deadline = fields.optional_integer("deadline_ms", 1, int64_t{1000} * 1000 * 1000);
  if (!deadline) return;
  const std::chrono::milliseconds asked(*deadline);
  options.deadline = options.deadline ? std::min(*options.deadline, asked) : asked;
}

OpenAiRequest read_openai_fields(FieldReader& fields, const ServerContext& server) {
  OpenAiRequest request;
  request.options = read_generation_options(fields, server, {});
  read_service_fields(fields, request.options);
  request.options.keeps_stop = fields.boolean("include_stop_str_in_output", false);
  const auto max_tokens = fields.optional_integer("max_tokens", 1, kAnyInteger);
  const auto max_completion_tokens = fields.optional_integer("max_completion_tokens", 1, kAnyInteger);
  request.max_tokens = max_completion_tokens ? max_completion_tokens : max_tokens;
  request.num_choices = fields.integer("n", 1, 1, kMostChoices);
  request.rid = fields.text("rid").value_or("");
  if (request.rid.size() > kLongestName) fields.refuse("rid", "is longer than 256 bytes");
  request.stream = fields.boolean("stream", false);
  if (const boost::json::value* options = fields.find("stream_options")) {
    if (!options->is_object()) {
      fields.refuse("stream_options", "must be an object");
    } else {
      FieldReader inner(options->get_object(), "stream_options.");
      request.include_usage = inner.boolean("include_usage", false);
      request.continuous_usage = inner.boolean("continuous_usage_stats", false);
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

// The caller of these routes writes the whole prompt, template markers included.
asio::awaitable<std::vector<TokenId>> encode_on_workers(ServerContext& server, std::string text) {
  constexpr size_t kShortText = 4096;
  if (text.size() <= kShortText) co_return server.tokenizer->encode(text, SpecialTokens::kRecognized);
  co_return co_await asio::co_spawn(
      server.workers,
      [&server, &text]() -> asio::awaitable<std::vector<TokenId>> {
        co_return server.tokenizer->encode(text, SpecialTokens::kRecognized);
      },
      asio::use_awaitable);
}

asio::awaitable<Result<std::vector<TokenId>>> encode_text(ServerContext& server, std::string text) {
  const int64_t least = server.tokenizer->min_tokens_for(text.size());
  if (least >= server.context_length) {
    co_return fail(Error::invalid(fmt::format("The prompt has {} bytes, which is at least {} tokens, but the context "
                                              "length is {} tokens for prompt and answer "
                                              "together. Shorten the prompt.",
                                              text.size(), least, server.context_length.load()),
                                  "prompt"));
  }
  co_return co_await encode_on_workers(server, std::move(text));
}

Result<std::unique_ptr<Generation>> start_generation(Exchange& exchange, GenerationStart start) {
  ServerContext& server = exchange.server();
  RequestGateway* gateway = server.gateway;
  if (gateway == nullptr) return fail(Error::unavailable(not_ready(server).message));
  auto generation = std::make_unique<Generation>(
      exchange.stream().get_executor(),
      Generation::Context{.gateway = gateway, .tokenizer = server.tokenizer, .metrics = server.metrics.get()});
  size_t index = 0;
  for (const std::vector<TokenId>& prompt : start.prompts) {
    const int64_t room = server.context_length - static_cast<int64_t>(prompt.size());
    exchange.prompt_tokens += static_cast<int64_t>(prompt.size());
    std::string first_id;
    for (int64_t copy = 0; copy < start.num_choices; ++copy, ++index) {
      ChoiceStart choice{
          .request_id = index == 0 ? exchange.request_id() : fmt::format("{}-{}", exchange.request_id(), index),
          .prompt_ids = prompt,
          .options = start.options,
          .fork_of = first_id};
      choice.options.sampling.max_new_tokens =
          start.max_tokens ? *start.max_tokens : std::max<int64_t>(1, std::min(start.default_max_tokens, room));
      choice.options.sampling.seed += index;  // equal prompts are sampled apart
      if (copy > 0) choice.options.first_scored = -1;
      if (first_id.empty()) first_id = choice.request_id;
      GIMBAL_RETURN_IF_ERROR(generation->submit(std::move(choice)));
    }
  }
  return generation;
}

std::vector<LiveGenerations::Entry> name_choices(ServerContext& server, Generation& generation,
                                                 const std::vector<std::string>& names, int64_t num_choices) {
  std::vector<LiveGenerations::Entry> entries;
  for (size_t choice = 0; !names.empty() && choice < generation.choices().size(); ++choice) {
    const size_t prompt = choice / static_cast<size_t>(num_choices);
    entries.emplace_back(server.live, names[std::min(prompt, names.size() - 1)], &generation, choice);
  }
  return entries;
}

HttpError not_ready(const ServerContext& server) {
  return to_http_error(Error::unavailable(server.is_stopping
                                              ? "The server is stopping and takes no new requests."
                                              : "The model is still being loaded. Try again in a moment."));
}

boost::json::object usage_of(const Generation& generation) {
  const int64_t prompt_tokens = generation.prompt_tokens();
  const int64_t completion_tokens = generation.completion_tokens();
  boost::json::object details;
  details["cached_tokens"] = generation.cached_tokens();
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens},
          {"prompt_tokens_details", std::move(details)}};
}

boost::json::value matched_stop_of(const GenerationPiece& piece) {
  if (piece.matched_stop) return boost::json::value(*piece.matched_stop);
  if (piece.matched_stop_token) return boost::json::value(*piece.matched_stop_token);
  return nullptr;
}

}  // namespace gimbal
