#include "server/server_metrics.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace gimbal {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;

// From least to most by a factor of about 1.6, two digits.
Histogram::BucketBoundaries boundaries(double least, double most) {
  Histogram::BucketBoundaries result;
  for (double value = least; value < most * 1.2; value *= 1.6) {
    const double digit = std::pow(10.0, std::floor(std::log10(value)) - 1);
    result.push_back(std::round(value / digit) * digit);
  }
  return result;
}

}  // namespace

struct ServerMetrics::Families {
  explicit Families(const std::string& model_name) : base{{"model_name", model_name}, {"engine_type", "unified"}} {}

  Gauge& gauge(const std::string& name, const std::string& help, const Labels& more = {}) {
    Labels labels = base;
    labels.insert(more.begin(), more.end());
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
  }
  Counter& counter(const std::string& name, const std::string& help, const Labels& more = {}) {
    Labels labels = base;
    labels.insert(more.begin(), more.end());
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
  }
  Histogram& histogram(const std::string& name, const std::string& help, double least, double most) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(base, boundaries(least, most));
  }
  // Counters of the engine are totals; the library only adds.
  void raise(const std::string& name, const std::string& help, double total, const Labels& more = {}) {
    Counter& target = counter(name, help, more);
    if (total > target.Value()) target.Increment(total - target.Value());
  }

  Labels base;
  prometheus::Registry registry{prometheus::Registry::InsertBehavior::Merge};
  Histogram& first_token =
      histogram("sglang:time_to_first_token_seconds", "From submission to the first token.", 0.001, 400);
  Histogram& next_token =
      histogram("sglang:inter_token_latency_seconds", "Between two tokens of a request.", 0.0005, 8);
  Histogram& whole = histogram("sglang:e2e_request_latency_seconds", "From submission to the last token.", 0.001, 2400);
  Histogram& queue = histogram("sglang:queue_time_seconds", "From submission to the first step.", 0.0001, 400);
  Histogram& prompt = histogram("sglang:prompt_tokens_histogram", "Prompt tokens of a request.", 1, 262144);
  Histogram& uncached =
      histogram("sglang:uncached_prompt_tokens_histogram", "Prompt tokens that had to be computed.", 1, 262144);
  Histogram& generated = histogram("sglang:generation_tokens_histogram", "Generated tokens of a request.", 1, 262144);
  Counter& requests = counter("sglang:num_requests_total", "Requests that ended, aborted ones included.");
  Counter& aborted =
      counter("sglang:num_aborted_requests_total", "Requests that ended early: client gone or abort asked.");
  Counter& http_requests = counter("sglang:http_requests_total", "HTTP requests.");
  Gauge& active = gauge("sglang:http_requests_active", "HTTP requests that are being answered.");
  uint64_t last_generated = 0;
  std::chrono::steady_clock::time_point last_time = std::chrono::steady_clock::now();
};

ServerMetrics::ServerMetrics(const std::string& model_name) : families_(std::make_unique<Families>(model_name)) {}
ServerMetrics::~ServerMetrics() = default;

void ServerMetrics::set_facts(const EngineFacts& facts) {
  Families& f = *families_;
  constexpr double kGb = 1e9;
  f.gauge("sglang:context_len", "Tokens of prompt and answer together.").Set(static_cast<double>(facts.context_length));
  f.gauge("sglang:weight_memory_usage_gb", "Weights.").Set(static_cast<double>(facts.weight_bytes) / kGb);
  f.gauge("sglang:kv_cache_memory_usage_gb", "KV pool.").Set(static_cast<double>(facts.kv_bytes) / kGb);
  f.gauge("sglang:startup_time_seconds", "Of starting.", {{"phase", "load_weight"}}).Set(facts.load_seconds);
}

void ServerMetrics::count_request() { families_->http_requests.Increment(); }
void ServerMetrics::count_active(int64_t change) { families_->active.Increment(static_cast<double>(change)); }

void ServerMetrics::count_first_token(double queue_s, double first_token_s) {
  families_->queue.Observe(queue_s);
  families_->first_token.Observe(first_token_s);
}

void ServerMetrics::count_next_token(double seconds) { families_->next_token.Observe(seconds); }

void ServerMetrics::count_end(const EndedRequest& request) {
  Families& f = *families_;
  f.requests.Increment();
  if (request.is_aborted) f.aborted.Increment();
  f.whole.Observe(request.seconds);
  f.prompt.Observe(static_cast<double>(request.prompt_tokens));
  f.uncached.Observe(static_cast<double>(std::max<int64_t>(0, request.prompt_tokens - request.cached_tokens)));
  f.generated.Observe(static_cast<double>(request.generated_tokens));
}

void ServerMetrics::count_response(unsigned status) {
  families_->counter("sglang:http_responses_total", "HTTP answers.", {{"status_code", fmt::format("{}", status)}})
      .Increment();
}

void ServerMetrics::set_state(const EngineState& state) {
  Families& f = *families_;
  const auto set = [&](const char* name, const char* help, double value, const Labels& labels = {}) {
    f.gauge(name, help, labels).Set(value);
  };
  const auto total = [&](const char* name, const char* help, double value, const Labels& labels = {}) {
    f.raise(name, help, value, labels);
  };
  const double capacity = std::max<double>(1, static_cast<double>(state.kv_tokens_total));
  int64_t paused = 0, cached = 0, free_pages = 0, evicted = 0;
  for (size_t group = 0; group < state.groups.size(); ++group) {
    const GroupLoad& load = state.groups[group];
    paused += load.num_paused;
    cached += load.pages_cached;
    free_pages += load.pages_free;
    evicted += load.pages_evicted;
    const Labels labels = {{"dp_rank", fmt::format("{}", group)}};
    set("gimbal_group_running_reqs", "Sequences computed in a DP group.", static_cast<double>(load.num_running),
        labels);
    set("gimbal_group_used_pages", "KV pages used in a DP group.", static_cast<double>(load.pages_used), labels);
  }
  const auto tokens = [&](int64_t pages) { return static_cast<double>(pages * state.page_size); };
  set("sglang:num_running_reqs", "Requests computed now.", static_cast<double>(state.num_running - paused));
  set("sglang:num_queue_reqs", "Requests that wait.", static_cast<double>(state.num_queued));
  set("sglang:num_paused_reqs", "Requests that have begun and wait for room.", static_cast<double>(paused));
  set("sglang:token_usage", "Share of the KV pool that requests use.",
      static_cast<double>(state.kv_tokens_used) / capacity);
  set("sglang:num_used_tokens", "KV tokens that requests use.", static_cast<double>(state.kv_tokens_used));
  set("sglang:kv_used_tokens", "KV tokens that requests use.", static_cast<double>(state.kv_tokens_used));
  set("sglang:kv_evictable_tokens", "KV tokens kept for later prompts only.", tokens(cached));
  set("sglang:kv_available_tokens", "KV tokens that are free.", tokens(free_pages));
  set("sglang:max_total_num_tokens", "KV tokens of the pool.", static_cast<double>(state.kv_tokens_total));
  set("sglang:page_size", "Tokens of a KV page.", static_cast<double>(state.page_size));
  set("gimbal_max_running_requests", "Requests computed side by side at most.", static_cast<double>(state.max_running));
  const auto prompt_total =
      static_cast<double>(state.prompt_tokens) + static_cast<double>(state.scheduler.cached_tokens);
  set("sglang:cache_hit_rate", "Share of prompt tokens found in the index since the start.",
      prompt_total > 0 ? static_cast<double>(state.scheduler.cached_tokens) / prompt_total : 0);
  total("sglang:prompt_tokens_total", "Prompt tokens of requests that were begun.", prompt_total);
  total("sglang:generation_tokens_total", "Generated tokens.", static_cast<double>(state.generated_tokens));
  total("sglang:cached_tokens_total", "Prompt tokens found in the index.",
        static_cast<double>(state.scheduler.cached_tokens), {{"cache_source", "device"}});
  total("sglang:num_retracted_requests_total", "Requests paused after they had begun.",
        static_cast<double>(state.scheduler.preemptions));
  total("sglang:evicted_tokens_total", "KV tokens of prompts given up for others.", tokens(evicted));
  set_step_totals(state);
  total("gimbal_replayed_requests_total", "Paused requests that had to be computed again.",
        static_cast<double>(state.scheduler.replays));
  total("gimbal_pages_to_host_total", "KV pages moved to host memory.",
        static_cast<double>(state.scheduler.pages_to_host));
  total("gimbal_pages_to_device_total", "KV pages moved back.", static_cast<double>(state.scheduler.pages_to_device));
}

void ServerMetrics::set_step_totals(const EngineState& state) {
  Families& f = *families_;
  const auto total = [&](const char* name, const char* help, double value) { f.raise(name, help, value); };
  total("gimbal_steps_total", "Steps.", static_cast<double>(state.num_steps));
  total("gimbal_prefill_steps_total", "Steps with prompt tokens.", static_cast<double>(state.num_prefill_steps));
  total("gimbal_step_seconds_total", "Time with a step in flight.", state.step_s);
  total("gimbal_host_gap_seconds_total", "Time between steps while there was work.", state.host_gap_s);
  const auto now = std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(now - f.last_time).count();
  if (seconds >= 0.5) {
    f.gauge("sglang:gen_throughput", "Generated tokens per second since the last scrape.")
        .Set(static_cast<double>(state.generated_tokens - f.last_generated) / seconds);
    f.last_generated = state.generated_tokens;
    f.last_time = now;
  }
}

void ServerMetrics::set_reports(const std::vector<RankReport>& reports) {
  Families& f = *families_;
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const RankReport& report = reports[rank];
    const auto verb_s = [&](CommVerb verb) {
      const auto index = static_cast<size_t>(verb);
      return index < report.comm_seconds.size() ? report.comm_seconds[index] : 0.0;
    };
    const double all_reduce = verb_s(CommVerb::kAllReduce);
    const double exchange = verb_s(CommVerb::kAllGather) + verb_s(CommVerb::kReduceScatter) +
                            verb_s(CommVerb::kAllToAll) + verb_s(CommVerb::kShare) + verb_s(CommVerb::kPut) +
                            verb_s(CommVerb::kWaitSignal) + verb_s(CommVerb::kBarrier);
    const double hop = verb_s(CommVerb::kSend) + verb_s(CommVerb::kReceive);
    const std::pair<const char*, double> parts[] = {
        {"attention", report.times.attention_s},
        {"experts", std::max(0.0, report.times.feed_forward_s - exchange - all_reduce)},
        {"exchange", exchange},
        {"all_reduce", all_reduce},
        {"hop", hop},
        {"head", report.times.head_s},
        {"sampling", report.times.sampling_s},
        {"total", report.times.total_s}};
    for (const auto& [part, seconds] : parts) {
      f.raise("gimbal_step_component_seconds_total", "Time of a rank's steps by component.", seconds,
              {{"rank", fmt::format("{}", rank)}, {"component", part}});
    }
    f.raise("gimbal_exchange_bytes_total", "Bytes of token rows that a rank sent to others.",
            static_cast<double>(report.exchange.row_bytes), {{"rank", fmt::format("{}", rank)}});
  }
  if (reports.empty()) return;
  std::vector<double> load(reports.front().expert_load.empty() ? 0 : reports.front().expert_load.front().size(), 0.0);
  for (const RankReport& report : reports) {
    for (const std::vector<uint64_t>& layer : report.expert_load) {
      for (size_t expert = 0; expert < layer.size() && expert < load.size(); ++expert)
        load[expert] += static_cast<double>(layer[expert]);
    }
  }
  double sum = 0, most = 0;
  for (size_t expert = 0; expert < load.size(); ++expert) {
    f.raise("gimbal_expert_tokens_total", "Tokens routed to an expert, over all layers.", load[expert],
            {{"expert", fmt::format("{}", expert)}});
    sum += load[expert];
    most = std::max(most, load[expert]);
  }
  if (most > 0)
    f.gauge("sglang:eplb_balancedness", "Mean over largest load of the experts.")
        .Set(sum / static_cast<double>(load.size()) / most);
}

std::string ServerMetrics::text(const EngineState& state, const std::vector<RankReport>& reports) {
  set_state(state);
  set_reports(reports);
  return prometheus::TextSerializer().Serialize(families_->registry.Collect());
}

}  // namespace gimbal
