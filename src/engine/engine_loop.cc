#include "engine/engine_loop.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "base/log.h"

namespace gimbal {
namespace {

TokenEvent last_event(FinishReason reason) {
  TokenEvent event;
  event.finish = reason;
  return event;
}

TokenEvent last_event(const Error& error) {
  TokenEvent event;
  event.error = error;
  return event;
}

}  // namespace

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

EngineLoop::EngineLoop(RankExecutor& executor, const EngineLoopOptions& options)
    : executor_(executor),
      options_(options),
      scheduler_({.max_running = executor.plan().memory.max_running,
                  .tokens_per_step = executor.plan().memory.tokens_per_step,
                  .num_micro_batches = executor.plan().num_in_flight,
                  .group_choice = executor.plan().group_choice,
                  .finds_prefixes = options.finds_prefixes,
                  // One form for all tokens: what was generated can stand for a later prompt bit by bit.
                  .indexes_generated = executor.plan().is_deterministic,
                  .aging_ms = options.priority_aging_ms},
                 {.num_groups = executor.plan().layout.attention_dp,
                  .num_pages = executor.plan().memory.num_pages,
                  .num_host_pages = executor.plan().memory.num_host_pages,
                  .page_size = executor.plan().page_size}) {
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
    if (state_.num_queued >= options_.max_queued) {
      return fail(Error{ErrorKind::kTooManyWaiting,
                        fmt::format("{} requests are waiting already (--max-queued-requests {}). Try again later.",
                                    state_.num_queued, options_.max_queued),
                        {}});
    }
    ++state_.num_queued;
    ++state_.num_requests;
    auto sink = std::make_shared<Sink>();
    sink->on_event = std::move(on_event);
    std::erase_if(sinks_, [](const std::weak_ptr<Sink>& known) { return known.expired(); });
    sinks_.push_back(sink);
    arrivals_.push_back({.request = std::move(request), .sink = std::move(sink)});
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

void EngineLoop::abort_all() {
  {
    const std::lock_guard lock(mutex_);
    must_abort_all_ = true;
  }
  wake_.notify_all();
}

void EngineLoop::flush_cache(std::function<void(bool)> on_done) {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back([this, on_done = std::move(on_done)] { on_done(scheduler_.flush_index()); });
  }
  wake_.notify_all();
}

void EngineLoop::pause(PauseMode mode, std::function<void()> on_done) {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back([this, mode, on_done = std::move(on_done)] {
      is_paused_ = true;
      if (mode == PauseMode::kRetract) scheduler_.retract_all();
      if (mode == PauseMode::kAbort) abort_active();
      on_done();
    });
  }
  wake_.notify_all();
}

void EngineLoop::continue_generation() {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back([this] { is_paused_ = false; });
  }
  wake_.notify_all();
}

void EngineLoop::report(std::function<void(std::vector<RankReport>)> on_done) {
  {
    const std::lock_guard lock(mutex_);
    if (!has_failed_ && !is_stopping_) {
      commands_.push_back([this, on_done] {
        Result<std::vector<RankReport>> reports = executor_.reports();
        on_done(reports ? std::move(*reports) : std::vector<RankReport>{});
      });
      wake_.notify_all();
      return;
    }
  }
  on_done({});
}

EngineState EngineLoop::state() const {
  const std::lock_guard lock(mutex_);
  EngineState state = state_;
  const uint64_t progress = executor_.progress() + num_rounds_.load(std::memory_order_relaxed);
  const bool has_work = state.num_running + state.num_queued > 0 && !state.is_paused;
  if (progress != seen_progress_ || !has_work) last_progress_ = Clock::now();
  seen_progress_ = progress;
  state.is_stuck = Clock::now() - last_progress_ > options_.soft_watchdog;
  state.is_ready = state.is_ready && !state.is_stuck;
  return state;
}

void EngineLoop::publish_state() {
  const std::lock_guard lock(mutex_);
  state_.is_ready = !is_stopping_ && !has_failed_;
  state_.is_paused = is_paused_;
  state_.num_running = scheduler_.num_running();
  state_.num_queued = scheduler_.num_queued() + static_cast<int64_t>(arrivals_.size());
  state_.page_size = executor_.plan().page_size;
  state_.max_running = executor_.plan().memory.max_running * scheduler_.num_groups();
  state_.kv_tokens_total = executor_.plan().memory.num_pages * state_.page_size * scheduler_.num_groups();
  state_.kv_tokens_used = 0;
  state_.groups.clear();
  for (int32_t group = 0; group < scheduler_.num_groups(); ++group) {
    state_.groups.push_back(scheduler_.load(group));
    state_.kv_tokens_used += state_.groups.back().pages_used * state_.page_size;
  }
  state_.scheduler = scheduler_.counters();
}

int64_t EngineLoop::now_ms() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start_).count();
}

void EngineLoop::add_request(ActiveRequest arrival) {
  const uint64_t id = next_id_++;
  const GenerationRequest& request = arrival.request;
  SequenceRequest sequence{.id = id,
                           .prompt_ids = request.prompt_ids,
                           .max_new_tokens = request.sampling.max_new_tokens,
                           .priority = request.priority,
                           .arrival_ms = now_ms(),
                           .cache_salt = request.cache_salt,
                           .first_scored = request.first_scored};
  if (request.deadline) sequence.deadline_ms = sequence.arrival_ms + request.deadline->count();
  if (const auto first = ids_.find(request.fork_of); first != ids_.end()) sequence.fork_of = first->second;
  const SamplingOptions& sampling = request.sampling;
  if (sampling.repetition_penalty != 1.0f) {
    for (const TokenId token : request.prompt_ids) arrival.counts[token] = 0;
  }
  ids_[request.request_id] = id;
  scheduler_.add(std::move(sequence));
  active_.emplace(id, std::move(arrival));
}

// Moves arrivals to the scheduler and carries out aborts. An abort that overtakes its own arrival finds it here too.
void EngineLoop::take_arrivals(std::unique_lock<std::mutex>& lock) {
  std::vector<ActiveRequest> arrivals = std::exchange(arrivals_, {});
  const std::vector<std::string> aborts = std::exchange(aborts_, {});
  for (std::function<void()>& command : std::exchange(commands_, {})) held_commands_.push_back(std::move(command));
  const bool must_abort_all = std::exchange(must_abort_all_, false);
  lock.unlock();
  for (ActiveRequest& arrival : arrivals) add_request(std::move(arrival));
  for (const std::string& request_id : aborts) {
    if (const auto found = ids_.find(request_id); found != ids_.end())
      end_request(found->second, last_event(FinishReason::kAbort));
  }
  if (must_abort_all) abort_active();
  end_expired();
  publish_state();
  lock.lock();
}

void EngineLoop::abort_active() {
  while (!active_.empty()) end_request(active_.begin()->first, last_event(FinishReason::kAbort));
}

void EngineLoop::end_expired() {
  for (const uint64_t id : scheduler_.expired(now_ms())) {
    const ActiveRequest& active = active_.at(id);
    end_request(id, last_event(Error{ErrorKind::kDeadlinePassed,
                                     fmt::format("The answer was not complete within its deadline of {} ms; {} tokens "
                                                 "had been generated.",
                                                 active.request.deadline->count(), active.num_generated),
                                     {}}));
  }
}

void EngineLoop::run_commands() {
  for (const std::function<void()>& command : std::exchange(held_commands_, {})) command();
}

bool EngineLoop::must_hold() const { return is_paused_ || !held_commands_.empty(); }

void EngineLoop::run() {
  try {
    std::unique_lock lock(mutex_);
    while (!is_stopping_ && !has_failed_) {
      ++num_rounds_;
      take_arrivals(lock);
      lock.unlock();
      if (executor_.num_in_flight() == 0) run_commands();
      const Result<bool> has_work = submit_steps();
      deliver();
      if (!has_work) return fail_all(has_work.error());
      if (*has_work) {
        if (const Status status = wait_for_step(); !status) return fail_all(status.error());
      }
      publish_state();
      lock.lock();
      if (!*has_work) sleep_until_needed(lock);
    }
    take_arrivals(lock);
    lock.unlock();
    abort_active();
    deliver();
    while (executor_.num_in_flight() > 0) {  // ranks may be in the middle of them
      if (!executor_.wait()) break;
    }
    run_commands();
    publish_state();
  } catch (const std::exception& exception) {
    fail_all(Error::failed(fmt::format("The engine failed: {}.", exception.what())));
  }
}

void EngineLoop::sleep_until_needed(std::unique_lock<std::mutex>& lock) {
  const auto is_needed = [this] {
    return is_stopping_ || has_failed_ || must_abort_all_ || !arrivals_.empty() || !aborts_.empty() ||
           !commands_.empty() || !held_commands_.empty() || !outbox_.empty();
  };
  const int64_t deadline_ms = scheduler_.next_deadline_ms();
  if (deadline_ms == std::numeric_limits<int64_t>::max()) {
    wake_.wait(lock, is_needed);
  } else {
    wake_.wait_until(lock, start_ + std::chrono::milliseconds(deadline_ms), is_needed);
  }
}

Result<bool> EngineLoop::submit_steps() {
  while (!must_hold() && executor_.num_in_flight() < executor_.plan().num_in_flight) {
    std::optional<StepPlan> plan = scheduler_.plan_step();
    if (!plan) break;
    for (PlannedSequence& planned : plan->sequences) {
      ActiveRequest& active = active_.at(planned.sequence_id);
      if (active.first_step == Clock::time_point{}) active.first_step = Clock::now();
      if (planned.wants_token) plan_sampling(planned);
      if (planned.logit_rows == LogitRows::kAll) plan_scores(planned);
    }
    GIMBAL_RETURN_IF_ERROR(executor_.submit(*plan));
    count_step(*plan);
  }
  publish_state();  // what was admitted waits no more, before its first token is seen
  return executor_.num_in_flight() > 0;
}

void EngineLoop::count_step(const StepPlan& plan) {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  if (executor_.num_in_flight() == 1) {
    if (had_work_) state_.host_gap_s += std::chrono::duration<double>(now - last_step_end_).count();
    step_start_ = now;
  }
  ++state_.num_steps;
  if (plan.has_prefill()) ++state_.num_prefill_steps;
  for (const PlannedSequence& planned : plan.sequences) {
    if (planned.is_prefill) state_.prompt_tokens += planned.token_ids.size();
  }
}

// While the ranks compute, what is paused or waits may come in: it is looked at before the wait.
Status EngineLoop::wait_for_step() {
  scheduler_.admit();
  GIMBAL_ASSIGN_OR_RETURN(const StepResult result, executor_.wait());
  last_step_end_ = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    state_.step_s += std::chrono::duration<double>(last_step_end_ - step_start_).count();
  }
  step_start_ = last_step_end_;
  for (const SequenceResult& sequence : result.sequences) take_result(sequence);
  had_work_ = !active_.empty();
  return {};
}

void EngineLoop::plan_sampling(PlannedSequence& planned) {
  const ActiveRequest& active = active_.at(planned.sequence_id);
  const SamplingOptions& options = active.request.sampling;
  SamplingPlan sampling{.temperature = options.temperature,
                        .top_k = options.top_k,
                        .top_p = options.top_p,
                        .min_p = options.min_p,
                        .seed = options.seed,
                        .position = static_cast<int64_t>(active.request.prompt_ids.size()) + active.num_generated,
                        .biases = options.biases,
                        .repetition_penalty = options.repetition_penalty,
                        .frequency_penalty = options.frequency_penalty,
                        .presence_penalty = options.presence_penalty};
  for (const auto& [id, count] : active.counts) sampling.seen.push_back({.id = id, .num_generated = count});
  if (active.num_generated < options.min_new_tokens) {
    const std::vector<TokenId> end_ids = end_ids_of(options);
    std::copy_if(end_ids.begin(), end_ids.end(), std::back_inserter(sampling.forbidden_ids),
                 [&](TokenId end) { return end >= 0 && end < executor_.config().vocab_size; });
  }
  planned.sampling = std::move(sampling);
  planned.wants_log_probability = active.request.wants_log_probability;
  planned.num_top_logits = static_cast<int32_t>(active.request.num_top_logits);
}

void EngineLoop::plan_scores(PlannedSequence& planned) const {
  const GenerationRequest& request = active_.at(planned.sequence_id).request;
  planned.num_top_logits = static_cast<int32_t>(request.num_top_logits);
  for (size_t row = 0; row < planned.token_ids.size(); ++row) {
    const size_t next = static_cast<size_t>(planned.first_position) + row + 1;
    planned.target_ids.push_back(next < request.prompt_ids.size() ? request.prompt_ids[next] : -1);
  }
}

std::vector<TokenId> EngineLoop::end_ids_of(const SamplingOptions& sampling) const {
  std::vector<TokenId> ids = sampling.stop_token_ids;
  if (!sampling.ignore_eos) ids.insert(ids.end(), end_token_ids_.begin(), end_token_ids_.end());
  return ids;
}

TokenEvent EngineLoop::describe(const ActiveRequest& active, const SequenceResult& result) const {
  TokenEvent event{
      .token_id = result.token_id,
      .log_probability = result.log_probability,
      .num_cached_tokens = scheduler_.num_cached_tokens(result.sequence_id),
      .queued = std::chrono::duration_cast<std::chrono::microseconds>(active.first_step - active.submitted)};
  if (active.request.first_scored < 0) {
    if (!result.rows.empty()) event.score = result.rows.back();
    return event;
  }
  // Rows of a prompt chunk predict the prompt's next tokens; a target marks them.
  for (const RowScore& row : result.rows) {
    if (!std::isnan(row.log_probability)) event.prompt_scores.push_back(row);
  }
  if (result.token_id && !result.rows.empty()) event.score = result.rows.back();
  return event;
}

void EngineLoop::take_result(const SequenceResult& result) {
  const auto found = active_.find(result.sequence_id);
  if (found == active_.end()) return;  // ended while its step was in flight
  ActiveRequest& active = found->second;
  if (!result.is_finite) {
    return end_request(result.sequence_id,
                       last_event(Error::failed("The model computed values that are not numbers; the weights or the "
                                                "machine are at fault. No token can be chosen.")));
  }
  TokenEvent event = describe(active, result);
  if (!result.token_id) {
    outbox_.push_back({active.sink, std::move(event)});
    return;
  }
  const SamplingOptions& sampling = active.request.sampling;
  ++active.num_generated;
  if (sampling.repetition_penalty != 1.0f || sampling.frequency_penalty != 0.0f || sampling.presence_penalty != 0.0f)
    ++active.counts[*result.token_id];
  {
    const std::lock_guard lock(mutex_);
    ++state_.generated_tokens;
  }
  const std::vector<TokenId> end_ids = end_ids_of(sampling);
  if (std::find(end_ids.begin(), end_ids.end(), *result.token_id) != end_ids.end()) {
    event.is_end_token = true;
    event.matched_stop = *result.token_id;
    event.finish = FinishReason::kStop;
  } else if (active.num_generated >= sampling.max_new_tokens) {
    event.finish = FinishReason::kLength;
  }
  if (event.finish) return end_request(result.sequence_id, std::move(event));
  scheduler_.append_token(result.sequence_id, *result.token_id);
  outbox_.push_back({active.sink, std::move(event)});
}

void EngineLoop::end_request(uint64_t id, TokenEvent event) {
  const auto found = active_.find(id);
  if (found == active_.end()) return;
  scheduler_.finish(id);
  if (event.finish == FinishReason::kAbort) {
    const std::lock_guard lock(mutex_);
    ++state_.num_aborted;
  }
  // A client may have used the same name twice; forget only the one that ended.
  if (const auto named = ids_.find(found->second.request.request_id); named != ids_.end() && named->second == id)
    ids_.erase(named);
  outbox_.push_back({found->second.sink, std::move(event)});
  active_.erase(found);
}

void EngineLoop::deliver() {
  for (const Delivery& delivery : std::exchange(outbox_, {})) {
    const bool is_last = delivery.event.finish.has_value() || delivery.event.error.has_value();
    const bool was_closed = is_last ? delivery.sink->is_closed.exchange(true) : delivery.sink->is_closed.load();
    if (!was_closed) delivery.sink->on_event(delivery.event);
  }
}

void EngineLoop::fail_all(const Error& error) {
  std::vector<std::shared_ptr<Sink>> open;
  std::vector<ActiveRequest> arrivals;  // keep their sinks until they have been told
  {
    const std::lock_guard lock(mutex_);
    if (has_failed_) return;
    has_failed_ = true;
    state_.is_ready = false;
    state_.has_failed = true;
    state_.failure = error.message;
    arrivals = std::exchange(arrivals_, {});
    for (const std::weak_ptr<Sink>& known : sinks_) {
      if (auto sink = known.lock()) open.push_back(std::move(sink));
    }
  }
  wake_.notify_all();
  spdlog::error("{}", error.message);
  for (const std::shared_ptr<Sink>& sink : open) {
    if (!sink->is_closed.exchange(true)) sink->on_event(last_event(error));
  }
}

}  // namespace gimbal
