// generation_request: what the generating routes share: sampling fields, encoding, the start of a generation.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>
#include <boost/asio/awaitable.hpp>
#include <boost/json/object.hpp>

#include "server/exchange.h"
#include "server/generation.h"
#include "server/request_fields.h"

namespace gimbal {

// Names and bounds in which OpenAI's bodies and SGLang's sampling_params differ.
struct SamplingFieldForm {
  const char* seed = "seed";
  const char* min_tokens = "min_tokens";
  double largest_temperature = 2;
};

// Sampling, stop texts and stop ids; refuses, by name, what is known but not offered by this build. An absent seed is a
// random one.
GenerationOptions read_generation_options(FieldReader& fields, const ServerContext& server,
                                          const SamplingFieldForm& form);

// Fields that OpenAI's completion and chat bodies share.
struct OpenAiRequest {
  GenerationOptions options;
  std::optional<int64_t> max_tokens;
  bool stream = false;
  bool include_usage = false;
};

// Reads them and refuses, by name, fields that are known but not offered by this build. Faults are in the reader.
OpenAiRequest read_openai_fields(FieldReader& fields, const ServerContext& server);

// The parsed object of the request's body.
Result<boost::json::object> read_body(const HttpRequest& request);

// The model field must name the served model; an absent one is allowed only when `is_required` is false.
std::optional<HttpError> check_model(FieldReader& fields, const ServerContext& server);

// A text that surely does not fit is refused before it is encoded; long texts are encoded on the workers.
boost::asio::awaitable<Result<std::vector<TokenId>>> encode_text(ServerContext& server, std::string text);

// Submits to the engine. `max_tokens` absent: `default_max_tokens` or what fits the context, whichever is less.
struct GenerationStart {
  std::vector<TokenId> prompt_ids;
  GenerationOptions options;
  std::optional<int64_t> max_tokens;
  int64_t default_max_tokens = 0;
  std::string request_id;
};
Result<std::unique_ptr<Generation>> start_generation(Exchange& exchange, GenerationStart start);

// The answer to give when no engine takes requests.
HttpError not_ready(const ServerContext& server);

boost::json::object usage_of(int64_t prompt_tokens, int64_t completion_tokens);

// "stop", "length", "abort" of the last piece, and what matched: the stop text, the end token's id, or null.
boost::json::value matched_stop_of(const GenerationPiece& piece);

}  // namespace gimbal
