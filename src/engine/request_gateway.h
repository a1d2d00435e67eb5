// RequestGateway: the door between the server's threads and the engine's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "ops/logit_statistics.h"

namespace gimbal {

using TokenId = int32_t;

struct SamplingOptions {
  float temperature = 1.0f;  // 0: the highest logit, ties to the lower id
  float top_p = 1.0f;        // (0, 1]
  int32_t top_k = 0;         // 0: all
  float min_p = 0.0f;        // [0, 1)
  uint64_t seed = 0;         // with the position, the only source of randomness
  int64_t max_new_tokens = 16;
  int64_t min_new_tokens = 0;  // end tokens and stop ids cannot be sampled before
  bool ignore_eos = false;
  std::vector<TokenId> stop_token_ids = {};  // end the request besides the model's end tokens
};

enum class FinishReason { kStop, kLength, kAbort };

// "stop", "length", "abort".
const char* name_of(FinishReason reason);

struct GenerationRequest {
  std::string request_id;  // unique among the requests in flight
  std::vector<TokenId> prompt_ids;
  SamplingOptions sampling;
  int64_t num_top_logits = 0;  // highest logits to report with every token
};

// One event of a request's life, in order: any number with a token, then exactly one with `finish` or `error`.
// The last token may come with `finish`. The end token that stopped the request is delivered too (is_end_token).
struct TokenEvent {
  std::optional<TokenId> token_id = {};
  bool is_end_token = false;              // token_id is an end or stop id: not part of the text
  std::vector<TopLogit> top_logits = {};  // [num_top_logits] before sampling, best first
  std::optional<FinishReason> finish = {};
  std::optional<TokenId> matched_stop = {};  // the id that stopped it
  std::optional<Error> error = {};
};

// What the engine is doing, for /health and /server_info. Copied under a lock.
struct EngineState {
  bool is_ready = false;  // weights are there and a token has been computed
  bool is_stopping = false;
  int64_t num_running = 0;
  int64_t num_queued = 0;
  uint64_t num_steps = 0;
  uint64_t prompt_tokens = 0;
  uint64_t generated_tokens = 0;
  int64_t kv_tokens_total = 0;
  int64_t kv_tokens_used = 0;
};

// All members may be called from any thread.
class RequestGateway {
 public:
  virtual ~RequestGateway() = default;

  // Queues a request. `on_event` is called on the engine's thread, must not block and must not call the gateway.
  // Refused: prompt empty, an id outside the vocabulary, prompt + 1 > context length, queue full (kUnavailable),
  // stopping (kUnavailable).
  virtual Status submit(GenerationRequest request, std::function<void(const TokenEvent&)> on_event) = 0;

  // Ends a request; it gets a last event with FinishReason::kAbort. Unknown ids are ignored.
  virtual void abort(const std::string& request_id) = 0;

  virtual EngineState state() const = 0;
};

}  // namespace gimbal
