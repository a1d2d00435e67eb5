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

// priority, cache_salt, deadline_ms.
void read_service_fields(FieldReader& fields, GenerationOptions& options);

// Fields that OpenAI's completion and chat bodies share.
struct OpenAiRequest {
  GenerationOptions options = {};
  std::optional<int64_t> max_tokens;
  int64_t num_choices = 1;  // n
  std::string rid = {};
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
};

// The names of its choices: rid, if there is one.
inline std::vector<std::string> names_of(const OpenAiRequest& request) {
  return request.rid.empty() ? std::vector<std::string>{} : std::vector<std::string>{request.rid};
}

// Reads them and refuses, by name, fields that are known but not offered by this build. Faults are in the reader.
OpenAiRequest read_openai_fields(FieldReader& fields, const ServerContext& server);

// The parsed object of the request's body.
Result<boost::json::object> read_body(const HttpRequest& request);

// The model field must name the served model; an absent one is allowed only when `is_required` is false.
std::optional<HttpError> check_model(FieldReader& fields, const ServerContext& server);

// Long texts are encoded on the workers.
boost::asio::awaitable<std::vector<TokenId>> encode_on_workers(ServerContext& server, std::string text);

// A text that surely does not fit is refused before it is encoded; long texts are encoded on the workers.
boost::asio::awaitable<Result<std::vector<TokenId>>> encode_text(ServerContext& server, std::string text);

// The choices of one exchange: each prompt `num_choices` times.
struct GenerationStart {
  std::vector<std::vector<TokenId>> prompts = {};
  GenerationOptions options = {};
  std::optional<int64_t> max_tokens = {};  // absent: default_max_tokens or what fits the context, whichever is less
  int64_t default_max_tokens = 0;
  int64_t num_choices = 1;
};
// Submits to the engine. All are taken, or none goes on.
Result<std::unique_ptr<Generation>> start_generation(Exchange& exchange, GenerationStart start);

// The choices under the names by which clients may abort them: one for all, or one per prompt.
std::vector<LiveGenerations::Entry> name_choices(ServerContext& server, Generation& generation,
                                                 const std::vector<std::string>& names, int64_t num_choices);

// The answer to give when no engine takes requests.
HttpError not_ready(const ServerContext& server);

boost::json::object usage_of(const Generation& generation);

// "stop", "length", "abort" of the last piece, and what matched: the stop text, the end token's id, or null.
boost::json::value matched_stop_of(const GenerationPiece& piece);

}  // namespace gimbal
