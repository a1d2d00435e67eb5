// RequestGateway: the door between the server's threads and the engine's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/logit_bias.h"
#include "base/result.h"
#include "engine/rank_messages.h"
#include "engine/step_result.h"
#include "scheduler/scheduler.h"

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
  float repetition_penalty = 1.0f;           // > 0; of prompt and answer
  float frequency_penalty = 0.0f;            // of the answer
  float presence_penalty = 0.0f;
  std::vector<LogitBias> biases = {};  // ids inside the vocabulary, each once
};

enum class FinishReason { kStop, kLength, kAbort };

// "stop", "length", "abort".
const char* name_of(FinishReason reason);

struct GenerationRequest {
  std::string request_id;  // unique among the requests in flight
  std::vector<TokenId> prompt_ids;
  SamplingOptions sampling;
  bool wants_log_probability = false;  // of every token
  int64_t num_top_logits = 0;          // highest logits to report with every token, and with every prompt position
  int64_t first_scored = -1;           // prompt position from which on predictions are reported; -1: none
  int64_t priority = 0;                // higher goes first
  std::string cache_salt = {};         // KV pages are shared only among requests with the same
  std::optional<std::chrono::milliseconds> deadline = {};  // for the whole answer, from submission
  std::string fork_of = {};  // request id, submitted before, with the same prompt: its pages are shared
};

// One event of a request's life, in order: any number with a token, then exactly one with `finish` or `error`.
// The last token may come with `finish`. The end token that stopped the request is delivered too (is_end_token).
struct TokenEvent {
  std::optional<TokenId> token_id = {};
  bool is_end_token = false;                 // token_id is an end or stop id: not part of the text
  double log_probability = 0;                // of token_id, when wanted; before temperature and penalties
  RowScore score = {};                       // highest logits of the row that token_id came from
  std::vector<RowScore> prompt_scores = {};  // predictions after first_scored, first_scored + 1, ...; may come in parts
  int64_t num_cached_tokens = 0;             // of the prompt, found in the prefix index
  std::chrono::microseconds queued{0};       // between submission and the first step
  std::optional<FinishReason> finish = {};
  std::optional<TokenId> matched_stop = {};  // the id that stopped it
  std::optional<Error> error = {};
};

// What the engine is doing. Copied under a lock.
struct EngineState {
  bool is_ready = false;  // weights are there and a token has been computed
  bool is_stopping = false;
  bool has_failed = false;
  bool is_stuck = false;  // work is there, but nothing has moved for the soft watchdog's time
  bool is_paused = false;
  std::string failure = {};
  int64_t num_running = 0;
  int64_t num_queued = 0;
  uint64_t num_steps = 0;
  uint64_t num_prefill_steps = 0;
  uint64_t prompt_tokens = 0;  // computed
  uint64_t generated_tokens = 0;
  uint64_t num_requests = 0;
  uint64_t num_aborted = 0;
  double step_s = 0;      // time with a step in flight
  double host_gap_s = 0;  // time between steps while there was work
  int64_t kv_tokens_total = 0;
  int64_t kv_tokens_used = 0;
  int64_t page_size = 0;
  int64_t max_running = 0;             // of all groups
  std::vector<GroupLoad> groups = {};  // [num DP groups]
  SchedulerCounters scheduler = {};
};

enum class PauseMode {
  kAbort,    // running requests end with FinishReason::kAbort
  kRetract,  // running requests give up their pages and are computed again
  kInPlace,  // running requests keep their pages and wait
};

// All members may be called from any thread. Callbacks run on the engine's thread, must not block and must not call the
// gateway.
class RequestGateway {
 public:
  virtual ~RequestGateway() = default;

  // Queues a request. Refused: prompt empty, an id outside the vocabulary, prompt + 1 > context length, queue full
  // (kTooManyWaiting), stopping or failed (kUnavailable).
  virtual Status submit(GenerationRequest request, std::function<void(const TokenEvent&)> on_event) = 0;

  // Ends a request; it gets a last event with FinishReason::kAbort. Unknown ids are ignored.
  virtual void abort(const std::string& request_id) = 0;
  virtual void abort_all() = 0;

  // Forgets indexed prompts; `on_done` gets false when requests run.
  virtual void flush_cache(std::function<void(bool)> on_done) = 0;
  // No step is begun until continue_generation(); requests are still queued. `on_done` when none runs any more.
  virtual void pause(PauseMode mode, std::function<void()> on_done) = 0;
  virtual void continue_generation() = 0;
  // What every rank has counted; asked of the ranks between two steps. Empty after a failure.
  virtual void report(std::function<void(std::vector<RankReport>)> on_done) = 0;

  virtual EngineState state() const = 0;
};

}  // namespace gimbal
