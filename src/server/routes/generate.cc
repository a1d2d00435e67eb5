// POST /generate: SGLang's body: text or ids, one or a list of them; streams carry the text so far.
#include <fmt/format.h>

#include <chrono>
#include <limits>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "server/routes/generation_request.h"
#include "server/routes/route_list.h"

namespace gimbal {
namespace {

namespace asio = boost::asio;
namespace json = boost::json;

constexpr int64_t kDefaultMaxNewTokens = 128;
constexpr size_t kMostPrompts = 256;

struct GenerateRequest {
  std::vector<std::string> texts;  // one of the two has entries
  std::vector<std::vector<TokenId>> ids;
  bool is_batch = false;
  bool stream = false;
  GenerationOptions options;
  std::optional<int64_t> max_new_tokens;
  size_t size() const { return texts.empty() ? ids.size() : texts.size(); }
};

void read_sampling(FieldReader& fields, const ServerContext& server, GenerateRequest& request) {
  constexpr SamplingFieldForm kForm{
      .seed = "sampling_seed", .min_tokens = "min_new_tokens", .largest_temperature = 100};
  request.options = read_generation_options(fields, server, kForm);
  request.max_new_tokens = fields.optional_integer("max_new_tokens", 1, std::numeric_limits<int64_t>::max());
  fields.only_boolean("spaces_between_special_tokens", true);
  fields.only_number("stream_interval", 1);
  for (const char* key : {"structural_tag", "custom_params"}) fields.only_absent(key);
  fields.only_boolean("no_stop_trim", false);
  fields.refuse_unknown();
}

void read_ids(FieldReader& fields, const json::value& value, const ServerContext& server, GenerateRequest& request) {
  const auto read_one = [&](const json::value& list) {
    std::vector<TokenId> ids;
    for (const json::value& id : list.get_array()) {
      if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= server.vocab_size) {
        return fields.refuse("input_ids", fmt::format("{} is not an id of the vocabulary of {} ids",
                                                      json::serialize(id), server.vocab_size));
      }
      ids.push_back(static_cast<TokenId>(id.get_int64()));
    }
    request.ids.push_back(std::move(ids));
  };
  if (!value.is_array() || value.get_array().empty())
    return fields.refuse("input_ids", "must be a list of token ids or a list of such lists, not empty");
  request.is_batch = value.get_array()[0].is_array();
  if (!request.is_batch) return read_one(value);
  for (const json::value& list : value.get_array()) {
    if (!list.is_array()) return fields.refuse("input_ids", "mixes ids and lists");
    read_one(list);
  }
}

void read_texts(FieldReader& fields, const json::value& value, GenerateRequest& request) {
  request.is_batch = value.is_array();
  request.texts = fields.texts("text", kMostPrompts);
  for (const std::string& text : request.texts) {
    if (text.empty()) fields.refuse("text", "is empty; at least one token is needed");
  }
  if (request.texts.empty()) fields.refuse("text", "is an empty list");
}

GenerateRequest read_generate_request(FieldReader& fields, const ServerContext& server) {
  GenerateRequest request;
  const json::value* text = fields.find("text");
  const json::value* ids = fields.find("input_ids");
  if ((text == nullptr) == (ids == nullptr)) {
    fields.refuse(text == nullptr ? "text" : "input_ids", "exactly one of text and input_ids is needed");
    return request;
  }
  if (text != nullptr) read_texts(fields, *text, request);
  if (ids != nullptr) read_ids(fields, *ids, server, request);
  if (request.size() > kMostPrompts)
    fields.refuse(text != nullptr ? "text" : "input_ids",
                  fmt::format("holds {} prompts, at most {} are taken", request.size(), kMostPrompts));
  request.stream = fields.boolean("stream", false);
  static const json::object kNoParameters;
  const json::value* parameters = fields.find("sampling_params");
  if (parameters != nullptr && !parameters->is_object()) {
    fields.refuse("sampling_params", "must be an object (one for all prompts)");
    return request;
  }
  FieldReader sampling(parameters != nullptr ? parameters->get_object() : kNoParameters, "sampling_params.");
  read_sampling(sampling, server, request);
  if (sampling.error()) fields.refuse("sampling_params", sampling.error()->message);
  fields.only_boolean("return_logprob", false);
  fields.only_number("logprob_start_len", -1);
  fields.only_number("top_logprobs_num", 0);
  fields.only_boolean("return_text_in_logprobs", false);
  for (const char* key : {"image_data", "input_embeds", "audio_data", "lora_path", "token_ids_logprob"})
    fields.only_absent(key);
  constexpr std::string_view kIgnored[] = {"rid", "model", "log_metrics", "priority"};
  fields.ignore(kIgnored);
  fields.refuse_unknown();
  return request;
}

// One prompt of the request on its way.
struct Running {
  std::unique_ptr<Generation> generation = {};
  std::string id = {};
  std::string text = {};
  int64_t prompt_tokens = 0;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  json::object body(const GenerationPiece* last) const {
    const auto& output_ids = generation->output_ids();
    json::object meta{{"id", id},
                      {"prompt_tokens", prompt_tokens},
                      {"completion_tokens", output_ids.size()},
                      {"cached_tokens", 0},
                      {"weight_version", "default"}};
    meta["finish_reason"] = nullptr;
    if (last != nullptr) {
      json::object reason{{"type", name_of(*last->finish)}};
      if (last->finish == FinishReason::kLength) reason["length"] = output_ids.size();
      if (last->finish == FinishReason::kStop) reason["matched"] = matched_stop_of(*last);
      meta["finish_reason"] = std::move(reason);
      meta["e2e_latency"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    return {{"text", text},
            {"output_ids", json::array(output_ids.begin(), output_ids.end())},
            {"meta_info", std::move(meta)}};
  }
};

// Starts one prompt. All prompts of a batch run side by side.
asio::awaitable<Result<Running>> start_one(Exchange& exchange, GenerateRequest& request, size_t index) {
  ServerContext& server = exchange.server();
  Running running;
  running.id = request.is_batch ? fmt::format("{}-{}", exchange.request_id(), index) : exchange.request_id();
  std::vector<TokenId> ids;
  if (request.texts.empty()) {
    ids = std::move(request.ids[index]);
  } else {
    auto encoded = co_await encode_text(server, std::move(request.texts[index]));
    if (!encoded) co_return fail(encoded.error());
    ids = std::move(*encoded);
  }
  running.prompt_tokens = static_cast<int64_t>(ids.size());
  GenerationOptions options = request.options;
  if (index > 0) options.sampling.seed += index;  // equal prompts of a batch are sampled apart
  auto generation = start_generation(exchange, {.prompt_ids = std::move(ids),
                                                .options = std::move(options),
                                                .max_tokens = request.max_new_tokens,
                                                .default_max_tokens = kDefaultMaxNewTokens,
                                                .request_id = running.id});
  if (!generation) co_return fail(generation.error());
  running.generation = std::move(*generation);
  co_return running;
}

asio::awaitable<void> send_stream(Exchange& exchange, std::vector<Running>& all) {
  co_await exchange.start_events();
  for (size_t index = 0; index < all.size(); ++index) {
    Running& running = all[index];
    while (true) {
      const GenerationPiece piece = co_await running.generation->next(exchange.stream().socket());
      if (piece.error) {
        co_await exchange.send_event(json::serialize(error_body(to_http_error(*piece.error))));
        co_return co_await exchange.finish_events();
      }
      running.text += piece.text;
      json::object body = running.body(piece.finish ? &piece : nullptr);
      body["index"] = index;
      co_await exchange.send_event(json::serialize(body));
      if (!piece.finish) continue;
      exchange.completion_tokens += static_cast<int64_t>(running.generation->output_ids().size());
      break;
    }
  }
  co_await exchange.send_event("[DONE]");
  co_await exchange.finish_events();
}

}  // namespace

asio::awaitable<void> handle_generate(Exchange& exchange) {
  ServerContext& server = exchange.server();
  const auto body = read_body(exchange.request());
  if (!body) co_return co_await exchange.send_error(body.error());
  FieldReader fields(*body);
  GenerateRequest request = read_generate_request(fields, server);
  if (fields.error()) co_return co_await exchange.send_error(*fields.error());
  if (server.gateway == nullptr) co_return co_await exchange.send_error(not_ready(server));
  std::vector<Running> all;
  const size_t num_prompts = request.size();
  for (size_t index = 0; index < num_prompts; ++index) {
    auto running = co_await start_one(exchange, request, index);
    if (!running) co_return co_await exchange.send_error(running.error());
    all.push_back(std::move(*running));
  }
  if (request.stream) co_return co_await send_stream(exchange, all);
  json::array answers;
  for (Running& running : all) {
    while (true) {
      const GenerationPiece piece = co_await running.generation->next(exchange.stream().socket());
      if (piece.error) co_return co_await exchange.send_error(*piece.error);
      running.text += piece.text;
      if (!piece.finish) continue;
      exchange.completion_tokens += static_cast<int64_t>(running.generation->output_ids().size());
      answers.push_back(running.body(&piece));
      break;
    }
  }
  if (!request.is_batch) co_return co_await exchange.send_json(boost::beast::http::status::ok, answers[0].get_object());
  co_await exchange.send_json(boost::beast::http::status::ok, answers);
}

}  // namespace gimbal
