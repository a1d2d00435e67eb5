#include "engine/engine_loop.h"

#include <algorithm>
#include <exception>

#include <fmt/format.h>

#include "base/log.h"
#include "ops/sampling.h"

namespace gimbal {

const char* name_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
  }
  return "unknown";
}

EngineLoop::EngineLoop(ModelRunner& runner, int64_t max_queued)
    : runner_(runner),
      max_queued_(max_queued),
      pool_(runner.description().kv_tokens / runner.description().page_size, runner.description().page_size),
      scheduler_(
          {.max_running = runner.description().max_running, .tokens_per_step = runner.description().tokens_per_step},
          &pool_) {
  for (const int64_t id : runner.config().eos_token_ids) end_token_ids_.push_back(static_cast<TokenId>(id));
  publish_state();
  thread_ = std::thread([this] { run(); });
}

EngineLoop::~EngineLoop() { stop(); }

void EngineLoop::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    state_.is_stopping = true;
    state_.is_ready = false;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status EngineLoop::check_request(const GenerationRequest& request) const {
  const auto num_prompt = static_cast<int64_t>(request.prompt_ids.size());
  const int64_t context_length = runner_.description().context_length;
  if (num_prompt == 0) return fail(Error::invalid("The prompt is empty; at least one token is needed.", "prompt"));
  if (request.sampling.max_new_tokens < 1) {
    return fail(Error::invalid(fmt::format("max_tokens is {}; at least 1 is needed.", request.sampling.max_new_tokens),
                               "max_tokens"));
  }
  if (num_prompt >= context_length) {
    return fail(Error::invalid(fmt::format("The prompt has {} tokens, but the context length is {} tokens for prompt "
                                           "and answer together. Shorten the prompt.",
                                           num_prompt, context_length),
                               "prompt"));
  }
  if (num_prompt + request.sampling.max_new_tokens > context_length) {
    return fail(Error::invalid(
        fmt::format("The prompt has {} tokens and max_tokens is {}, but the context length is {} tokens. Ask for at "
                    "most {} tokens.",
                    num_prompt, request.sampling.max_new_tokens, context_length, context_length - num_prompt),
        "max_tokens"));
  }
  for (const TokenId id : request.prompt_ids) {
    if (id < 0 || id >= runner_.config().vocab_size) {
      return fail(Error::invalid(fmt::format("Token id {} of the prompt is outside the vocabulary of {} ids.", id,
                                             runner_.config().vocab_size),
                                 "prompt"));
    }
  }
  return {};
}

Status EngineLoop::submit(GenerationRequest request, std::function<void(const TokenEvent&)> on_event) {
  GIMBAL_RETURN_IF_ERROR(check_request(request));
  {
    const std::lock_guard lock(mutex_);
    if (has_failed_)
      return fail(Error::unavailable("The engine has failed and is being stopped; see the server's log."));
    if (is_stopping_) return fail(Error::unavailable("The server is stopping and takes no new requests."));
    if (state_.num_queued >= max_queued_) {
      return fail(
          Error::unavailable(fmt::format("{} requests are waiting already (--max-queued-requests {}). Try again later.",
                                         state_.num_queued, max_queued_)));
    }
    ++state_.num_queued;
    arrivals_.push_back({std::move(request), std::move(on_event)});
  }
  wake_.notify_all();
  return {};
}

void EngineLoop::abort(const std::string& request_id) {
  {
    const std::lock_guard lock(mutex_);
    aborts_.push_back(request_id);
  }
  wake_.notify_all();
}

EngineState EngineLoop::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void EngineLoop::publish_state() {
  const std::lock_guard lock(mutex_);
  state_.is_ready = !is_stopping_ && !has_failed_;
  state_.num_running = scheduler_.num_running();
  state_.num_queued = scheduler_.num_queued() + static_cast<int64_t>(arrivals_.size());
  state_.kv_tokens_total = pool_.num_pages() * pool_.page_size();
  state_.kv_tokens_used = pool_.num_used() * pool_.page_size();
}

// Moves arrivals to the scheduler and carries out aborts. An abort that overtakes its own arrival finds it here too.
void EngineLoop::take_arrivals(std::unique_lock<std::mutex>& lock) {
  std::vector<ActiveRequest> arrivals = std::exchange(arrivals_, {});
  const std::vector<std::string> aborts = std::exchange(aborts_, {});
  lock.unlock();
  for (ActiveRequest& arrival : arrivals) {
    const uint64_t id = next_id_++;
    ids_[arrival.request.request_id] = id;
    scheduler_.add({.id = id,
                    .prompt_ids = arrival.request.prompt_ids,
                    .max_new_tokens = arrival.request.sampling.max_new_tokens});
    active_.emplace(id, std::move(arrival));
  }
  for (const std::string& request_id : aborts) {
    if (const auto found = ids_.find(request_id); found != ids_.end())
      end_request(found->second, {.finish = FinishReason::kAbort});
  }
  publish_state();
  lock.lock();
}

void EngineLoop::run() {
  try {
    std::unique_lock lock(mutex_);
    while (!is_stopping_) {
      take_arrivals(lock);
      lock.unlock();
      const std::optional<StepPlan> plan = scheduler_.plan_step();
      publish_state();  // what was admitted waits no more, before its first token is seen
      if (plan) run_step(*plan);
      publish_state();
      lock.lock();
      if (!plan) wake_.wait(lock, [this] { return is_stopping_ || !arrivals_.empty() || !aborts_.empty(); });
    }
    take_arrivals(lock);
    lock.unlock();
    while (!active_.empty()) end_request(active_.begin()->first, {.finish = FinishReason::kAbort});
    publish_state();
  } catch (const std::exception& exception) {
    fail_all(Error::failed(fmt::format("The engine failed: {}.", exception.what())));
  }
}

void EngineLoop::run_step(const StepPlan& plan) {
  const auto vocab_size = static_cast<size_t>(runner_.config().vocab_size);
  std::span<const float> logits = runner_.run(plan);
  {
    const std::lock_guard lock(mutex_);
    ++state_.num_steps;
    for (const PlannedSequence& planned : plan.sequences) {
      if (planned.is_prefill) state_.prompt_tokens += planned.token_ids.size();
    }
  }
  for (const PlannedSequence& planned : plan.sequences) {
    if (planned.logit_rows != LogitRows::kLast) continue;
    deliver_token(planned.sequence_id, logits.first(vocab_size));
    logits = logits.subspan(vocab_size);
  }
}

std::vector<TokenId> EngineLoop::end_ids_of(const SamplingOptions& sampling) const {
  std::vector<TokenId> ids = sampling.stop_token_ids;
  if (!sampling.ignore_eos) ids.insert(ids.end(), end_token_ids_.begin(), end_token_ids_.end());
  return ids;
}

void EngineLoop::deliver_token(uint64_t id, std::span<const float> logits) {
  ActiveRequest& active = active_.at(id);
  const SamplingOptions& sampling_options = active.request.sampling;
  const std::vector<TokenId> end_ids = end_ids_of(sampling_options);
  std::vector<int32_t> forbidden;
  if (active.num_generated < sampling_options.min_new_tokens) {
    std::copy_if(end_ids.begin(), end_ids.end(), std::back_inserter(forbidden),
                 [&](TokenId end) { return end >= 0 && end < runner_.config().vocab_size; });
  }
  const std::optional<int32_t> token =
      sampling({.logits = logits,
                .temperature = sampling_options.temperature,
                .top_k = sampling_options.top_k,
                .top_p = sampling_options.top_p,
                .min_p = sampling_options.min_p,
                .seed = sampling_options.seed,
                .position = static_cast<int64_t>(active.request.prompt_ids.size()) + active.num_generated,
                .forbidden_ids = forbidden},
               runner_.op_context());
  if (!token) {
    return end_request(id,
                       {.error = Error::failed(
                            "The model computed values that are not numbers; the weights or the machine are at fault. "
                            "No token can be chosen.")});
  }
  ++active.num_generated;
  {
    const std::lock_guard lock(mutex_);
    ++state_.generated_tokens;
  }
  TokenEvent event{.token_id = *token};
  if (std::find(end_ids.begin(), end_ids.end(), *token) != end_ids.end()) {
    event.is_end_token = true;
    event.matched_stop = *token;
    event.finish = FinishReason::kStop;
  } else if (active.num_generated >= sampling_options.max_new_tokens) {
    event.finish = FinishReason::kLength;
  }
  if (event.finish) return end_request(id, event);
  scheduler_.append_token(id, *token);
  active.on_event(event);
}

void EngineLoop::end_request(uint64_t id, const TokenEvent& event) {
  const auto found = active_.find(id);
  if (found == active_.end()) return;
  scheduler_.finish(id);
  const ActiveRequest ended = std::move(found->second);
  active_.erase(found);
  // A client may have used the same name twice; forget only the one that ended.
  if (const auto named = ids_.find(ended.request.request_id); named != ids_.end() && named->second == id)
    ids_.erase(named);
  ended.on_event(event);
}

void EngineLoop::fail_all(const Error& error) {
  spdlog::error("{}", error.message);
  std::vector<ActiveRequest> arrivals;
  {
    const std::lock_guard lock(mutex_);
    has_failed_ = true;
    state_.is_ready = false;
    arrivals = std::exchange(arrivals_, {});
  }
  for (const ActiveRequest& arrival : arrivals) arrival.on_event({.error = error});
  for (const auto& [id, active] : active_) active.on_event({.error = error});
  active_.clear();
}

}  // namespace gimbal
