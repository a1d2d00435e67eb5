#include "engine/engine_loop.h"

#include <algorithm>
#include <exception>

#include <fmt/format.h>

#include "base/log.h"

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

EngineLoop::EngineLoop(RankExecutor& executor, int64_t max_queued)
    : executor_(executor),
      max_queued_(max_queued),
      pools_(static_cast<size_t>(executor.plan().layout.attention_dp),
             PagePool(executor.plan().memory.num_pages, executor.plan().page_size)),
      scheduler_({.max_running = executor.plan().memory.max_running,
                  .tokens_per_step = executor.plan().memory.tokens_per_step,
                  .num_micro_batches = executor.plan().num_in_flight,
                  .group_choice = executor.plan().group_choice},
                 pools_) {
  for (const int64_t id : executor.config().eos_token_ids) end_token_ids_.push_back(static_cast<TokenId>(id));
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
  const int64_t context_length = executor_.description().context_length;
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
    if (id < 0 || id >= executor_.config().vocab_size) {
      return fail(Error::invalid(fmt::format("Token id {} of the prompt is outside the vocabulary of {} ids.", id,
                                             executor_.config().vocab_size),
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
  state_.kv_tokens_total = 0;
  state_.kv_tokens_used = 0;
  for (const PagePool& pool : pools_) {
    state_.kv_tokens_total += pool.num_pages() * pool.page_size();
    state_.kv_tokens_used += pool.num_used() * pool.page_size();
  }
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
      const Result<bool> has_work = submit_steps();
      if (!has_work) return fail_all(has_work.error());
      if (*has_work) {
        const Result<StepResult> result = executor_.wait();
        if (!result) return fail_all(result.error());
        for (const SequenceResult& sequence : result->sequences) deliver(sequence);
      }
      publish_state();
      lock.lock();
      if (!*has_work) wake_.wait(lock, [this] { return is_stopping_ || !arrivals_.empty() || !aborts_.empty(); });
    }
    take_arrivals(lock);
    lock.unlock();
    while (!active_.empty()) end_request(active_.begin()->first, {.finish = FinishReason::kAbort});
    while (executor_.num_in_flight() > 0) {  // ranks may be in the middle of them
      if (!executor_.wait()) break;
    }
    publish_state();
  } catch (const std::exception& exception) {
    fail_all(Error::failed(fmt::format("The engine failed: {}.", exception.what())));
  }
}

Result<bool> EngineLoop::submit_steps() {
  while (executor_.num_in_flight() < executor_.plan().num_in_flight) {
    std::optional<StepPlan> plan = scheduler_.plan_step();
    publish_state();  // what was admitted waits no more, before its first token is seen
    if (!plan) break;
    for (PlannedSequence& planned : plan->sequences) {
      if (planned.logit_rows == LogitRows::kLast) plan_sampling(planned);
    }
    GIMBAL_RETURN_IF_ERROR(executor_.submit(*plan));
    count_step(*plan);
  }
  return executor_.num_in_flight() > 0;
}

void EngineLoop::count_step(const StepPlan& plan) {
  const std::lock_guard lock(mutex_);
  ++state_.num_steps;
  for (const PlannedSequence& planned : plan.sequences) {
    if (planned.is_prefill) state_.prompt_tokens += planned.token_ids.size();
  }
}

void EngineLoop::plan_sampling(PlannedSequence& planned) const {
  const ActiveRequest& active = active_.at(planned.sequence_id);
  const SamplingOptions& options = active.request.sampling;
  SamplingPlan sampling{.temperature = options.temperature,
                        .top_k = options.top_k,
                        .top_p = options.top_p,
                        .min_p = options.min_p,
                        .seed = options.seed,
                        .position = static_cast<int64_t>(active.request.prompt_ids.size()) + active.num_generated,
                        .forbidden_ids = {}};
  if (active.num_generated < options.min_new_tokens) {
    const std::vector<TokenId> end_ids = end_ids_of(options);
    std::copy_if(end_ids.begin(), end_ids.end(), std::back_inserter(sampling.forbidden_ids),
                 [&](TokenId end) { return end >= 0 && end < executor_.config().vocab_size; });
  }
  planned.sampling = std::move(sampling);
  planned.num_top_logits = static_cast<int32_t>(active.request.num_top_logits);
}

std::vector<TokenId> EngineLoop::end_ids_of(const SamplingOptions& sampling) const {
  std::vector<TokenId> ids = sampling.stop_token_ids;
  if (!sampling.ignore_eos) ids.insert(ids.end(), end_token_ids_.begin(), end_token_ids_.end());
  return ids;
}

void EngineLoop::deliver(const SequenceResult& result) {
  const auto found = active_.find(result.sequence_id);
  if (found == active_.end()) return;  // aborted while its step was in flight
  ActiveRequest& active = found->second;
  if (!result.token_id) {
    return end_request(result.sequence_id,
                       {.error = Error::failed(
                            "The model computed values that are not numbers; the weights or the machine are at fault. "
                            "No token can be chosen.")});
  }
  ++active.num_generated;
  {
    const std::lock_guard lock(mutex_);
    ++state_.generated_tokens;
  }
  TokenEvent event{.token_id = *result.token_id};
  if (!result.rows.empty()) event.top_logits = result.rows.front().top;
  const std::vector<TokenId> end_ids = end_ids_of(active.request.sampling);
  if (std::find(end_ids.begin(), end_ids.end(), *result.token_id) != end_ids.end()) {
    event.is_end_token = true;
    event.matched_stop = *result.token_id;
    event.finish = FinishReason::kStop;
  } else if (active.num_generated >= active.request.sampling.max_new_tokens) {
    event.finish = FinishReason::kLength;
  }
  if (event.finish) return end_request(result.sequence_id, event);
  scheduler_.append_token(result.sequence_id, *result.token_id);
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
