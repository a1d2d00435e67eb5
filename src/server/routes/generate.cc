// POST /generate: SGLang's body: text or ids, one or a list of them; streams carry the text so far.
#include <fmt/format.h>

#include <chrono>
#include <limits>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "server/routes/generation_request.h"
#include "server/routes/route_list.h"
#include "server/routes/token_scores.h"

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
  int64_t num_choices = 1;
  std::vector<std::string> names;      // rid: one for all, or one per prompt
  int64_t log_probability_start = -1;  // of the prompt; -1: only the answer
  bool wants_token_text = false;
  size_t size() const { return texts.empty() ? ids.size() : texts.size(); }
};

void read_sampling(FieldReader& fields, const ServerContext& server, GenerateRequest& request) {
  constexpr SamplingFieldForm kForm{
      .seed = "sampling_seed", .min_tokens = "min_new_tokens", .largest_temperature = 100};
  request.options = read_generation_options(fields, server, kForm);
  request.max_new_tokens = fields.optional_integer("max_new_tokens", 1, std::numeric_limits<int64_t>::max());
  request.num_choices = fields.integer("n", 1, 1, 128);
  request.options.keeps_stop = fields.boolean("no_stop_trim", false);
  fields.only_boolean("spaces_between_special_tokens", true);
  fields.only_number("stream_interval", 1);
  for (const char* key : {"structural_tag", "custom_params"}) fields.only_absent(key);
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

void read_log_probabilities(FieldReader& fields, GenerateRequest& request) {
  request.options.wants_log_probability = fields.boolean("return_logprob", false);
  request.log_probability_start = fields.integer("logprob_start_len", -1, -1, std::numeric_limits<int32_t>::max());
  request.options.num_top_logits = fields.integer("top_logprobs_num", 0, 0, 20);
  request.wants_token_text = fields.boolean("return_text_in_logprobs", false);
  if (!request.options.wants_log_probability) {
    request.options.num_top_logits = 0;
    request.log_probability_start = -1;
  }
  if (request.log_probability_start >= 0)
    request.options.first_scored = std::max<int64_t>(request.log_probability_start - 1, 0);
}

void read_names(FieldReader& fields, GenerateRequest& request) {
  const json::value* rid = fields.find("rid");
  if (rid == nullptr || (rid->is_string() && rid->get_string().empty())) return;
  const bool is_list = rid->is_array();
  request.names = fields.texts("rid", kMostPrompts);
  if (is_list && request.names.size() != request.size())
    fields.refuse("rid", fmt::format("has {} names for {} prompts", request.names.size(), request.size()));
  for (const std::string& name : request.names) {
    if (name.empty() || name.size() > 256) fields.refuse("rid", "must have 1 to 256 bytes");
  }
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
  read_log_probabilities(fields, request);
  read_service_fields(fields, request.options);
  read_names(fields, request);
  for (const char* key : {"image_data", "input_embeds", "audio_data", "lora_path", "token_ids_logprob"})
    fields.only_absent(key);
  constexpr std::string_view kIgnored[] = {"model", "log_metrics"};
  fields.ignore(kIgnored);
  fields.refuse_unknown();
  return request;
}

// What has come of one choice.
struct ChoiceState {
  std::string text = {};
  std::string new_text = {};
  size_t num_sent_ids = 0;  // with increments
  std::vector<RowScore> prompt_rows = {};
  std::vector<ScoredToken> tokens = {};
  std::optional<GenerationPiece> last = {};
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  void take(const GenerationPiece& piece) {
    text += piece.text;
    new_text = piece.text;
    prompt_rows.insert(prompt_rows.end(), piece.prompt_scores.begin(), piece.prompt_scores.end());
    if (piece.token_id)
      tokens.push_back({.id = *piece.token_id, .log_probability = piece.log_probability, .row = piece.score});
    if (piece.finish) last = piece;
  }
};

// Builds the answers.
class GenerateForm {
 public:
  GenerateForm(const ServerContext& server, const GenerateRequest& request, const std::string& id)
      : server_(server), request_(request), id_(id) {}

  json::object body(const Generation& generation, size_t index, ChoiceState& state, bool is_increment) const {
    const auto& ids = generation.choices()[index].output_ids;
    const size_t first = is_increment ? state.num_sent_ids : 0;
    state.num_sent_ids = ids.size();
    json::object object;
    object["text"] = is_increment ? state.new_text : state.text;
    object["output_ids"] = json::array(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end());
    object["meta_info"] = meta(generation, index, state);
    return object;
  }

  std::string name_of_choice(size_t index) const {
    const size_t prompt = index / static_cast<size_t>(request_.num_choices);
    if (request_.names.size() > 1) return request_.names[prompt];
    const std::string& base = request_.names.empty() ? id_ : request_.names.front();
    return request_.is_batch || request_.num_choices > 1 ? fmt::format("{}-{}", base, index) : base;
  }

 private:
  json::object meta(const Generation& generation, size_t index, const ChoiceState& state) const {
    const Generation::Choice& choice = generation.choices()[index];
    const size_t prompt = index / static_cast<size_t>(request_.num_choices);
    json::object meta{{"id", name_of_choice(index)},
                      {"prompt_tokens", request_.ids[prompt].size()},
                      {"completion_tokens", choice.output_ids.size()},
                      {"cached_tokens", choice.cached_tokens},
                      {"weight_version", "default"},
                      {"finish_reason", nullptr}};
    if (request_.options.wants_log_probability) add_scores(meta, prompt, state);
    if (!state.last) return meta;
    json::object reason{{"type", name_of(*state.last->finish)}};
    if (state.last->finish == FinishReason::kLength) reason["length"] = choice.output_ids.size();
    if (state.last->finish == FinishReason::kStop) reason["matched"] = matched_stop_of(*state.last);
    if (state.last->finish == FinishReason::kAbort) reason["message"] = "The request was aborted.";
    meta["finish_reason"] = std::move(reason);
    meta["e2e_latency"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - state.start).count();
    return meta;
  }

  void add_scores(json::object& meta, size_t prompt, const ChoiceState& state) const {
    const bool wants_text = request_.wants_token_text;
    const auto list = [&](const std::vector<ScoredToken>& tokens, const char* scores, const char* tops) {
      json::array entries, alternatives;
      for (const ScoredToken& token : tokens) {
        entries.push_back(sglang_token(*server_.tokenizer, token, wants_text));
        alternatives.push_back(sglang_alternatives(*server_.tokenizer, token, wants_text));
      }
      meta[scores] = std::move(entries);
      if (request_.options.num_top_logits > 0) meta[tops] = std::move(alternatives);
    };
    list(state.tokens, "output_token_logprobs", "output_top_logprobs");
    std::vector<ScoredToken> input;
    if (request_.log_probability_start >= 0)
      input = score_prompt(request_.ids[prompt], request_.log_probability_start, state.prompt_rows);
    list(input, "input_token_logprobs", "input_top_logprobs");
  }

  const ServerContext& server_;
  const GenerateRequest& request_;
  std::string id_;
};

asio::awaitable<std::optional<Error>> encode_texts(ServerContext& server, GenerateRequest& request) {
  for (std::string& text : request.texts) {
    auto encoded = co_await encode_text(server, std::move(text));
    if (!encoded) co_return encoded.error();
    request.ids.push_back(std::move(*encoded));
  }
  for (const std::vector<TokenId>& ids : request.ids) {
    if (request.log_probability_start >= static_cast<int64_t>(ids.size())) {
      co_return Error::invalid(fmt::format("logprob_start_len: {} is beyond the prompt of {} tokens.",
                                           request.log_probability_start, ids.size()),
                               "logprob_start_len");
    }
  }
  co_return std::nullopt;
}

asio::awaitable<void> send_stream(Exchange& exchange, Generation& generation, const GenerateForm& form,
                                  bool has_index) {
  co_await exchange.start_events();
  std::vector<ChoiceState> states(generation.choices().size());
  while (!generation.is_ended()) {
    const GenerationPiece piece = co_await generation.next(exchange.stream());
    exchange.completion_tokens = generation.completion_tokens();
    if (piece.error) {
      co_await exchange.send_event(json::serialize(error_body(to_http_error(*piece.error))));
      co_return co_await exchange.finish_events();
    }
    ChoiceState& state = states[piece.choice];
    state.take(piece);
    if (!piece.token_id && !piece.finish) continue;  // scores of the prompt come with the first token
    json::object body = form.body(generation, piece.choice, state, exchange.server().streams_increments);
    if (has_index) body["index"] = piece.choice;
    co_await exchange.send_event(json::serialize(body));
  }
  co_await exchange.send_event("[DONE]");
  co_await exchange.finish_events();
}

asio::awaitable<void> send_whole(Exchange& exchange, Generation& generation, const GenerateForm& form, bool is_list) {
  std::vector<ChoiceState> states(generation.choices().size());
  while (!generation.is_ended()) {
    const GenerationPiece piece = co_await generation.next(exchange.stream());
    exchange.completion_tokens = generation.completion_tokens();
    if (piece.error) co_return co_await exchange.send_error(*piece.error);
    states[piece.choice].take(piece);
  }
  json::array answers;
  for (size_t index = 0; index < states.size(); ++index)
    answers.push_back(form.body(generation, index, states[index], false));
  if (!is_list) co_return co_await exchange.send_json(boost::beast::http::status::ok, answers[0].get_object());
  co_await exchange.send_json(boost::beast::http::status::ok, answers);
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
  const std::optional<Error> fault = co_await encode_texts(server, request);
  if (fault) co_return co_await exchange.send_error(*fault);
  auto generation = start_generation(exchange, {.prompts = request.ids,
                                                .options = request.options,
                                                .max_tokens = request.max_new_tokens,
                                                .default_max_tokens = kDefaultMaxNewTokens,
                                                .num_choices = request.num_choices});
  if (!generation) co_return co_await exchange.send_error(generation.error());
  const auto names = name_choices(server, **generation, request.names, request.num_choices);
  const GenerateForm form(server, request, exchange.request_id());
  const bool is_list = request.is_batch || request.num_choices > 1;
  if (request.stream) co_return co_await send_stream(exchange, **generation, form, is_list);
  co_await send_whole(exchange, **generation, form, is_list);
}

}  // namespace gimbal
