#include "settings/settings_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>

namespace gimbal {
namespace {

constexpr double kLargest = 1e15;

const std::vector<Setting> kTable = {
    // Model and loading
    {.flag = "--model-path",
     .member = &Settings::model_path,
     .default_value = "",
     .commands = kModelCommands | kCheck | kRender,
     .section = "Model",
     .doc = "Folder with config.json, the safetensors files and the tokenizer.",
     .aliases = {"--model"},
     .placeholder = "DIR"},
    {.flag = "--tokenizer-path",
     .member = &Settings::tokenizer_path,
     .default_value = "",
     .commands = kModelCommands | kRender | kSynth,
     .section = "Model",
     .doc = "Folder with tiktoken.model and tokenizer_config.json, when it is not the model's. synth copies these "
            "files.",
     .placeholder = "DIR"},
    {.flag = "--load-format",
     .member = &Settings::load_format,
     .default_value = "auto",
     .commands = kModelCommands,
     .section = "Model",
     .doc = "auto and safetensors read the files; dummy makes up random weights and needs only config.json.",
     .choices = {"auto", "safetensors", "dummy"}},
    {.flag = "--served-model-name",
     .member = &Settings::served_model_name,
     .default_value = "",
     .commands = kServe,
     .section = "Model",
     .doc = "Name of the model in requests and answers. Default: the last part of --model-path.",
     .placeholder = "NAME"},
    {.flag = "--chat-template",
     .member = &Settings::chat_template,
     .default_value = "auto",
     .commands = kServe | kRender,
     .section = "Model",
     .doc = "How conversations become prompts. auto: kimi-k2 for kimi_k2 and deepseek_v3 models, kimi-k2.6 for "
            "kimi_k25.",
     .choices = {"auto", "kimi-k2", "kimi-k2-thinking", "kimi-k2.5", "kimi-k2.6"}},
    {.flag = "--latent-norm-eps",
     .member = &Settings::latent_norm_eps,
     .default_value = "-1",
     .commands = kModelCommands,
     .section = "Model",
     .doc = "Epsilon of the q_a and kv_a norms, on which published implementations differ. -1: rms_norm_eps of "
            "config.json.",
     .least = 1e-20,
     .most = 1.0,
     .also_allowed = {-1}},
    {.flag = "--weight-seed",
     .member = &Settings::weight_seed,
     .default_value = "0",
     .commands = kModelCommands,
     .section = "Model",
     .doc = "Seed of the random weights of --load-format dummy.",
     .least = 0,
     .most = kLargest},

    // Server
    {.flag = "--host",
     .member = &Settings::host,
     .default_value = "127.0.0.1",
     .commands = kServe,
     .section = "Server",
     .doc = "Address to listen on. Beyond loopback, set --api-key and --ssl-certfile.",
     .placeholder = "ADDRESS"},
    {.flag = "--port",
     .member = &Settings::port,
     .default_value = "30000",
     .commands = kServe,
     .section = "Server",
     .doc = "TCP port; 0 takes any free one.",
     .least = 0,
     .most = 65535},
    {.flag = "--max-queued-requests",
     .member = &Settings::max_queued_requests,
     .default_value = "256",
     .commands = kModelCommands,
     .section = "Server",
     .doc = "Requests that may wait; more are answered with 429.",
     .least = 1,
     .most = 1e6},
    {.flag = "--max-body-bytes",
     .member = &Settings::max_body_bytes,
     .default_value = "8388608",
     .commands = kServe,
     .section = "Server",
     .doc = "Largest request body; larger ones are answered with 413.",
     .least = 1024,
     .most = 1e9},
    {.flag = "--max-connections",
     .member = &Settings::max_connections,
     .default_value = "1024",
     .commands = kServe,
     .section = "Server",
     .doc = "Open connections; further ones are answered with 503 and closed.",
     .least = 1,
     .most = 1e6},
    {.flag = "--idle-timeout-s",
     .member = &Settings::idle_timeout_s,
     .default_value = "60",
     .commands = kServe,
     .section = "Server",
     .doc = "Seconds until a connection without a request is closed.",
     .least = 0.1,
     .most = 86400},
    {.flag = "--request-timeout-s",
     .member = &Settings::request_timeout_s,
     .default_value = "30",
     .commands = kServe,
     .section = "Server",
     .doc = "Seconds in which a request's head and body must arrive; also the patience with a reader that takes no "
            "data.",
     .least = 0.1,
     .most = 86400},
    {.flag = "--drain-timeout-s",
     .member = &Settings::drain_timeout_s,
     .default_value = "30",
     .commands = kServe,
     .section = "Server",
     .doc = "Seconds that running requests get to finish after SIGTERM or SIGINT.",
     .least = 0,
     .most = 86400},

    {.flag = "--request-deadline-s",
     .member = &Settings::request_deadline_s,
     .default_value = "-1",
     .commands = kServe,
     .section = "Server",
     .doc = "Seconds in which an answer must be complete, queueing included; later ones end with 504. -1: no limit. A "
            "request may ask for less with deadline_ms.",
     .least = 0.001,
     .most = 1e6,
     .also_allowed = {-1}},
    {.flag = "--soft-watchdog-timeout",
     .member = &Settings::soft_watchdog_timeout_s,
     .default_value = "4",
     .commands = kServe,
     .section = "Server",
     .doc = "Seconds without progress of the engine after which /health is red.",
     .least = 0.1,
     .most = 86400},
    {.flag = "--watchdog-timeout",
     .member = &Settings::watchdog_timeout_s,
     .default_value = "300",
     .commands = kServe,
     .section = "Server",
     .doc = "Seconds without progress after which requests fail and the process ends with code 1.",
     .least = 0.2,
     .most = 86400},
    {.flag = "--api-key",
     .member = &Settings::api_key,
     .default_value = "",
     .commands = kServe,
     .section = "Server",
     .doc = "Key that requests must bring (Authorization: Bearer KEY); @FILE reads it from a file. Only /health, "
            "/health_generate and /ready stay open.",
     .placeholder = "KEY"},
    {.flag = "--admin-api-key",
     .member = &Settings::admin_api_key,
     .default_value = "",
     .commands = kServe,
     .section = "Server",
     .doc = "Key of the routes that change the server (flush, abort, pause); @FILE reads it from a file. Default: "
            "--api-key.",
     .placeholder = "KEY"},
    {.flag = "--ssl-certfile",
     .member = &Settings::ssl_certfile,
     .default_value = "",
     .commands = kServe,
     .section = "Server",
     .doc = "Certificate chain (PEM); with --ssl-keyfile the server speaks HTTPS.",
     .placeholder = "FILE"},
    {.flag = "--ssl-keyfile",
     .member = &Settings::ssl_keyfile,
     .default_value = "",
     .commands = kServe,
     .section = "Server",
     .doc = "Private key (PEM) of --ssl-certfile.",
     .placeholder = "FILE"},
    {.flag = "--cors-origin",
     .member = &Settings::cors_origin,
     .default_value = "*",
     .commands = kServe,
     .section = "Server",
     .doc = "Origin that browsers may call from; empty: none.",
     .placeholder = "ORIGIN"},
    {.flag = "--incremental-streaming-output",
     .member = &Settings::incremental_streaming_output,
     .default_value = "false",
     .commands = kServe,
     .section = "Server",
     .doc = "/generate streams what is new instead of the text so far."},

    // Memory and scheduling
    {.flag = "--context-length",
     .member = &Settings::context_length,
     .default_value = "-1",
     .commands = kModelCommands,
     .section = "Memory and scheduling",
     .doc = "Tokens of prompt and answer together. -1: max_position_embeddings of the model.",
     .least = 1,
     .most = kLargest,
     .also_allowed = {-1}},
    {.flag = "--page-size",
     .member = &Settings::page_size,
     .default_value = "16",
     .commands = kModelCommands,
     .section = "Memory and scheduling",
     .doc = "Tokens of one KV page.",
     .least = 1,
     .most = 65536},
    {.flag = "--mem-fraction-static",
     .member = &Settings::mem_fraction_static,
     .default_value = "0.8",
     .commands = kModelCommands,
     .section = "Memory and scheduling",
     .doc = "Share of the usable memory (container limit included) for weights, workspace and KV.",
     .least = 0.01,
     .most = 1.0},
    {.flag = "--max-total-tokens",
     .member = &Settings::max_total_tokens,
     .default_value = "-1",
     .commands = kModelCommands,
     .section = "Memory and scheduling",
     .doc = "Tokens that the KV pool holds. -1: as many as the running requests can use, if memory allows.",
     .least = 1,
     .most = kLargest,
     .also_allowed = {-1}},
    {.flag = "--kv-host-ratio",
     .member = &Settings::kv_host_ratio,
     .default_value = "1",
     .commands = kModelCommands,
     .section = "Memory and scheduling",
     .doc = "Room for KV pages of paused requests, in units of the KV pool. Where it is full, a paused request is "
            "computed again.",
     .least = 0,
     .most = 64},
    {.flag = "--disable-radix-cache",
     .member = &Settings::disable_radix_cache,
     .default_value = "false",
     .commands = kModelCommands,
     .section = "Memory and scheduling",
     .doc = "Do not keep the KV pages of prompts for later requests that begin alike."},
    {.flag = "--priority-aging-ms",
     .member = &Settings::priority_aging_ms,
     .default_value = "10000",
     .commands = kServe,
     .section = "Memory and scheduling",
     .doc = "Waiting time that counts as much as one unit of a request's priority.",
     .least = 0,
     .most = 1e9},
    {.flag = "--max-running-requests",
     .member = &Settings::max_running_requests,
     .default_value = "-1",
     .commands = kModelCommands,
     .section = "Memory and scheduling",
     .doc = "Requests computed side by side. -1: 64.",
     .least = 1,
     .most = 65536,
     .also_allowed = {-1}},
    {.flag = "--chunked-prefill-size",
     .member = &Settings::chunked_prefill_size,
     .default_value = "2048",
     .commands = kModelCommands,
     .section = "Memory and scheduling",
     .doc = "Most prompt tokens of one step; longer prompts take several. -1: whole prompts.",
     .least = 1,
     .most = 1e9,
     .also_allowed = {-1}},
    {.flag = "--kv-cache-dtype",
     .member = &Settings::kv_cache_dtype,
     .default_value = "auto",
     .commands = kModelCommands,
     .section = "Memory and scheduling",
     .doc = "Element type of the KV pages. auto: float32.",
     .choices = {"auto", "float32"}},

    // Computation
    {.flag = "--device",
     .member = &Settings::device,
     .default_value = "auto",
     .commands = kModelCommands,
     .section = "Computation",
     .doc = "Where to compute. auto: cpu, the only device of this build.",
     .choices = {"auto", "cpu"}},
    {.flag = "--threads",
     .member = &Settings::num_threads,
     .default_value = "-1",
     .commands = kModelCommands,
     .section = "Computation",
     .doc = "Threads that compute. -1: the processors this process may use (affinity and container quota).",
     .least = 1,
     .most = 4096,
     .also_allowed = {-1}},
    {.flag = "--activation-dtype",
     .member = &Settings::activation_dtype,
     .default_value = "float32",
     .commands = kModelCommands,
     .section = "Computation",
     .doc = "Element type of activations.",
     .choices = {"float32"}},
    {.flag = "--deterministic",
     .member = &Settings::deterministic,
     .default_value = "false",
     .commands = kModelCommands,
     .section = "Computation",
     .doc = "One form of attention throughout, so that even recomputed tokens have the same bits. Slower prompts.",
     .aliases = {"--enable-deterministic-inference"}},
    {.flag = "--op-backend",
     .member = &Settings::op_backend,
     .default_value = "auto",
     .commands = kModelCommands,
     .section = "Computation",
     .doc = "Backend of matrix products, norms and other ops.",
     .choices = {"auto", "cpu", "reference"}},
    {.flag = "--attention-backend",
     .member = &Settings::attention_backend,
     .default_value = "auto",
     .commands = kModelCommands,
     .section = "Computation",
     .doc = "Backend of attention.",
     .choices = {"auto", "cpu", "reference"}},
    {.flag = "--moe-runner-backend",
     .member = &Settings::moe_runner_backend,
     .default_value = "auto",
     .commands = kModelCommands,
     .section = "Computation",
     .doc = "Backend of the routed experts.",
     .choices = {"auto", "cpu_simd", "reference"}},

    // Parallel layout
    {.flag = "--layout",
     .member = &Settings::layout,
     .default_value = "",
     .commands = kModelCommands,
     .section = "Parallel layout",
     .doc = "Layout by name: single, tp8, pp8, ep8, tep8, pp2tp4, pp2ep4, tp4ep2, dp2tp4ep8 and so on; suffixes :none "
            ":direct :mpi, :normal :low_latency, :dense1, :layers5,3. docs/layouts.md explains them. Default: from the "
            "sizes below.",
     .placeholder = "NAME"},
    {.flag = "--tp-size",
     .member = &Settings::tp_size,
     .default_value = "-1",
     .commands = kModelCommands,
     .section = "Parallel layout",
     .doc = "Ranks of a stage; attention DP and expert parallel subdivide them. -1: 1, or as --layout says.",
     .aliases = {"--tensor-parallel-size", "--tp"},
     .least = 1,
     .most = 4096,
     .also_allowed = {-1}},
    {.flag = "--pp-size",
     .member = &Settings::pp_size,
     .default_value = "-1",
     .commands = kModelCommands,
     .section = "Parallel layout",
     .doc = "Pipeline stages; all ranks = stages x ranks of a stage. -1: 1, or as --layout says.",
     .aliases = {"--pipeline-parallel-size", "--pp"},
     .least = 1,
     .most = 4096,
     .also_allowed = {-1}},
    {.flag = "--dp-size",
     .member = &Settings::dp_size,
     .default_value = "-1",
     .commands = kModelCommands,
     .section = "Parallel layout",
     .doc = "Attention data-parallel groups, with --enable-dp-attention: each has its own requests and KV pages. -1: "
            "1, or as --layout says.",
     .aliases = {"--data-parallel-size", "--dp", "--attn-dp-size"},
     .least = 1,
     .most = 4096,
     .also_allowed = {-1}},
    {.flag = "--ep-size",
     .member = &Settings::ep_size,
     .default_value = "-1",
     .commands = kModelCommands,
     .section = "Parallel layout",
     .doc = "Ranks of a stage over which whole experts are spread. -1: 1, or as --layout says; all ranks of the stage "
            "with an exchange.",
     .aliases = {"--expert-parallel-size", "--ep"},
     .least = 1,
     .most = 4096,
     .also_allowed = {-1}},
    {.flag = "--enable-dp-attention",
     .member = &Settings::enable_dp_attention,
     .default_value = "false",
     .commands = kModelCommands,
     .section = "Parallel layout",
     .doc = "Attention split by request over --dp-size groups instead of by head."},
    {.flag = "--moe-dense-tp-size",
     .member = &Settings::moe_dense_tp_size,
     .default_value = "none",
     .commands = kModelCommands,
     .section = "Parallel layout",
     .doc = "Ranks that share a dense layer or the shared expert: 1, or all of the attention group (none).",
     .placeholder = "N"},
    {.flag = "--pp-layer-partition",
     .member = &Settings::pp_layer_partition,
     .default_value = "",
     .commands = kModelCommands,
     .section = "Parallel layout",
     .doc = "Layers of each stage, like 15,15,15,16. Default: even by bytes of weights.",
     .placeholder = "LIST"},
    {.flag = "--pp-async-batch-depth",
     .member = &Settings::pp_async_batch_depth,
     .default_value = "0",
     .commands = kModelCommands,
     .section = "Parallel layout",
     .doc = "Micro-batches in flight beyond one per stage.",
     .least = 0,
     .most = 64},
    {.flag = "--load-balance-method",
     .member = &Settings::load_balance_method,
     .default_value = "auto",
     .commands = kModelCommands,
     .section = "Parallel layout",
     .doc = "How requests are spread over DP groups. auto: total_tokens.",
     .choices = {"auto", "round_robin", "total_requests", "total_tokens"}},
    {.flag = "--moe-a2a-backend",
     .member = &Settings::moe_a2a_backend,
     .default_value = "auto",
     .commands = kModelCommands,
     .section = "Parallel layout",
     .doc = "How tokens meet the experts of other ranks: none, direct (shared memory), mpi. auto: what --layout says, "
            "else none. Names of other servers are explained.",
     .placeholder = "NAME"},
    {.flag = "--deepep-mode",
     .member = &Settings::deepep_mode,
     .default_value = "auto",
     .commands = kModelCommands,
     .section = "Parallel layout",
     .doc = "Mode of the exchange. auto: normal for steps with prompt tokens, low_latency for pure decode.",
     .aliases = {"--exchange-mode"},
     .choices = {"auto", "normal", "low_latency"}},
    {.flag = "--low-latency-slots",
     .member = &Settings::low_latency_slots,
     .default_value = "-1",
     .commands = kModelCommands,
     .section = "Parallel layout",
     .doc = "Tokens a rank may bring to a low-latency exchange. -1: as many as the largest step of that mode can have.",
     .least = 1,
     .most = 1e6,
     .also_allowed = {-1}},
    {.flag = "--ep-num-redundant-experts",
     .member = &Settings::num_redundant_experts,
     .default_value = "0",
     .commands = kModelCommands,
     .section = "Parallel layout",
     .doc = "Extra physical copies of experts.",
     .least = 0,
     .most = 65536},
    {.flag = "--ep-dispatch-algorithm",
     .member = &Settings::ep_dispatch_algorithm,
     .default_value = "auto",
     .commands = kModelCommands,
     .section = "Parallel layout",
     .doc = "Which copy of an expert serves a token. static: one per rank, the own if there is one; dynamic: in turns. "
            "auto: static with an exchange, else dynamic.",
     .choices = {"auto", "static", "dynamic"}},
    {.flag = "--init-expert-location",
     .member = &Settings::init_expert_location,
     .default_value = "trivial",
     .commands = kModelCommands,
     .section = "Parallel layout",
     .doc = "Placement of experts: trivial, or a JSON file with physical_to_logical_map, or with logical_count from "
            "which a balanced placement is computed.",
     .placeholder = "FILE"},
    {.flag = "--expert-load-output",
     .member = &Settings::expert_load_output,
     .default_value = "",
     .commands = kScore | kGenerate,
     .section = "Parallel layout",
     .doc = "File to which score and generate write how many tokens each expert got, for --init-expert-location.",
     .placeholder = "FILE"},
    {.flag = "--comm",
     .member = &Settings::comm,
     .default_value = "auto",
     .commands = kModelCommands,
     .section = "Parallel layout",
     .doc = "What the ranks are. thread: threads of this process; mpi: the processes of mpirun. auto: mpi under "
            "mpirun, else thread.",
     .choices = {"auto", "thread", "mpi"}},
    {.flag = "--comm-timeout-s",
     .member = &Settings::comm_timeout_s,
     .default_value = "300",
     .commands = kModelCommands,
     .section = "Parallel layout",
     .doc =
         "Seconds a rank waits for its peers in one call; then all ranks end with an error that names the missing one.",
     .aliases = {"--dist-timeout"},
     .least = 0.1,
     .most = 86400},

    // generate, score, render
    {.flag = "--prompt",
     .member = &Settings::prompt,
     .default_value = "",
     .commands = kGenerate,
     .section = "Input and output",
     .doc = "Text to continue. Markers such as <|im_user|> in it become control tokens.",
     .placeholder = "TEXT"},
    {.flag = "--input",
     .member = &Settings::input,
     .default_value = "",
     .commands = kGenerate | kScore | kRender,
     .section = "Input and output",
     .doc = "JSON lines. generate: {\"id\", \"prompt\" or \"ids\"}; score: {\"id\", \"text\" or \"ids\"}; render: "
            "chat requests.",
     .placeholder = "FILE"},
    {.flag = "--output",
     .member = &Settings::output,
     .default_value = "",
     .commands = kScore | kSynth,
     .section = "Input and output",
     .doc = "score: JSON-lines file to write. synth: folder to make.",
     .placeholder = "PATH"},
    {.flag = "--max-new-tokens",
     .member = &Settings::max_new_tokens,
     .default_value = "128",
     .commands = kGenerate,
     .section = "Input and output",
     .doc = "Most tokens of an answer.",
     .least = 1,
     .most = 1e9},
    {.flag = "--temperature",
     .member = &Settings::temperature,
     .default_value = "0",
     .commands = kGenerate,
     .section = "Input and output",
     .doc = "0 takes the likeliest token; higher is more varied.",
     .least = 0,
     .most = 100},
    {.flag = "--top-p",
     .member = &Settings::top_p,
     .default_value = "1",
     .commands = kGenerate,
     .section = "Input and output",
     .doc = "Samples from the likeliest tokens that together reach this probability.",
     .least = 1e-9,
     .most = 1},
    {.flag = "--top-k",
     .member = &Settings::top_k,
     .default_value = "0",
     .commands = kGenerate,
     .section = "Input and output",
     .doc = "Samples from the this many likeliest tokens. 0: all.",
     .least = 0,
     .most = 1e9},
    {.flag = "--min-p",
     .member = &Settings::min_p,
     .default_value = "0",
     .commands = kGenerate,
     .section = "Input and output",
     .doc = "Drops tokens below this share of the likeliest one's probability.",
     .least = 0,
     .most = 1},
    {.flag = "--seed",
     .member = &Settings::seed,
     .default_value = "0",
     .commands = kGenerate | kSynth,
     .section = "Input and output",
     .doc = "generate: seed of sampling. synth: seed of the weights.",
     .least = 0,
     .most = kLargest},
    {.flag = "--ignore-eos",
     .member = &Settings::ignore_eos,
     .default_value = "false",
     .commands = kGenerate,
     .section = "Input and output",
     .doc = "Go on after an end token."},
    {.flag = "--top-logits",
     .member = &Settings::top_logits,
     .default_value = "-1",
     .commands = kScore | kGenerate,
     .section = "Input and output",
     .doc = "Highest logits to report per position (score) or generated token (generate). -1: 8 and none.",
     .least = 0,
     .most = 65536,
     .also_allowed = {-1}},

    // synth
    {.flag = "--model-config",
     .member = &Settings::model_config,
     .default_value = "",
     .commands = kSynth,
     .section = "Random checkpoints",
     .doc = "config.json with the dimensions of the checkpoint to make.",
     .placeholder = "FILE"},
    {.flag = "--quantization",
     .member = &Settings::quantization,
     .default_value = "int4",
     .commands = kSynth,
     .section = "Random checkpoints",
     .doc = "How the weights are stored: int4 experts and bfloat16 rest, all bfloat16, or FP8 in blocks.",
     .choices = {"int4", "bf16", "fp8"}},
    {.flag = "--shard-bytes",
     .member = &Settings::shard_bytes,
     .default_value = "5000000000",
     .commands = kSynth,
     .section = "Random checkpoints",
     .doc = "Largest size of one safetensors file.",
     .least = 1e6,
     .most = 1e12},

    // General
    {.flag = "--log-level",
     .member = &Settings::log_level,
     .default_value = "info",
     .commands = kAllCommands,
     .section = "General",
     .doc = "What is logged to stderr.",
     .choices = {"debug", "info", "warning", "error"}},
    {.flag = "--json",
     .member = &Settings::print_json,
     .default_value = "false",
     .commands = kAllCommands,
     .section = "General",
     .doc = "Print results as JSON for programs."},
};

struct CommandName {
  std::string_view name;
  CommandBit bit;
};
constexpr std::array<CommandName, 6> kCommands = {{{"serve", kServe},
                                                   {"generate", kGenerate},
                                                   {"score", kScore},
                                                   {"check", kCheck},
                                                   {"synth", kSynth},
                                                   {"render", kRender}}};

bool is_in_range(const Setting& setting, double value) {
  for (const double allowed : setting.also_allowed) {
    if (value == allowed) return true;
  }
  return value >= setting.least && value <= setting.most;
}

// The whole text as a number, else nullopt. Integers take no fraction and no exponent.
template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::string format_bound(double value) {
  return std::fabs(value) < 1e15 && value == std::floor(value) ? fmt::format("{:.0f}", value)
                                                               : fmt::format("{}", value);
}

Error not_allowed(const Setting& setting, std::string_view text) {
  return Error::invalid(
      fmt::format("{} is {}; allowed: {}", setting.flag, text.empty() ? "empty" : text, describe_allowed(setting)),
      std::string(setting.flag));
}

// One overload per type of setting.
struct Assign {
  const Setting& setting;
  std::string_view text;
  Settings& settings;

  Status operator()(std::string Settings::*member) const {
    bool is_allowed = setting.choices.empty();
    for (const std::string_view choice : setting.choices) is_allowed = is_allowed || choice == text;
    if (!is_allowed) return fail(not_allowed(setting, text));
    settings.*member = std::string(text);
    return {};
  }
  Status operator()(int64_t Settings::*member) const {
    const auto value = parse_number<int64_t>(text);
    if (!value || !is_in_range(setting, static_cast<double>(*value))) return fail(not_allowed(setting, text));
    settings.*member = *value;
    return {};
  }
  Status operator()(double Settings::*member) const {
    const auto value = parse_number<double>(text);
    if (!value || !is_in_range(setting, *value)) return fail(not_allowed(setting, text));  // NaN is in no range
    settings.*member = *value;
    return {};
  }
  Status operator()(bool Settings::*member) const {
    if (text != "true" && text != "false") return fail(not_allowed(setting, text));
    settings.*member = text == "true";
    return {};
  }
};

}  // namespace

std::span<const Setting> settings_table() { return kTable; }

std::optional<CommandBit> command_bit(std::string_view command) {
  for (const CommandName& known : kCommands) {
    if (known.name == command) return known.bit;
  }
  return std::nullopt;
}

Status assign_setting(const Setting& setting, std::string_view text, Settings& settings) {
  return std::visit(Assign{setting, text, settings}, setting.member);
}

Settings default_settings() {
  Settings settings;
  for (const Setting& setting : settings_table()) {
    if (setting.default_value.empty()) continue;
    (void)assign_setting(setting, setting.default_value, settings);  // a test proves that every default is allowed
  }
  return settings;
}

std::string describe_allowed(const Setting& setting) {
  if (!setting.choices.empty()) return fmt::format("one of {}", fmt::join(setting.choices, ", "));
  if (std::holds_alternative<bool Settings::*>(setting.member)) return "no value";
  if (std::holds_alternative<std::string Settings::*>(setting.member)) return "any text";
  std::string text = std::holds_alternative<int64_t Settings::*>(setting.member) ? "an integer" : "a number";
  text += setting.least == setting.most
              ? fmt::format(", only {}", format_bound(setting.least))
              : fmt::format(" from {} to {}", format_bound(setting.least), format_bound(setting.most));
  for (const double value : setting.also_allowed) text += fmt::format(", or {}", format_bound(value));
  return text;
}

std::string settings_page() {
  std::string page =
      "# Settings\n\nGenerated from `src/settings/settings_table.cc` by `gimbal settings-page`; do not edit.\n"
      "Flags may be written with `_` for `-`; that is printed once. Flags of SGLang that have no meaning here are "
      "accepted with a printed line.\n";
  std::string_view section;
  for (const Setting& setting : settings_table()) {
    if (setting.section != section) {
      section = setting.section;
      page +=
          fmt::format("\n## {}\n\n| flag | default | allowed | commands | meaning |\n|---|---|---|---|---|\n", section);
    }
    std::vector<std::string_view> commands;
    for (const CommandName& command : kCommands) {
      if ((setting.commands & command.bit) != 0) commands.push_back(command.name);
    }
    std::string flags = fmt::format("`{}`", setting.flag);
    for (const std::string_view alias : setting.aliases) flags += fmt::format(", `{}`", alias);
    page += fmt::format("| {} | {} | {} | {} | {} |\n", flags,
                        setting.default_value.empty() ? "" : fmt::format("`{}`", setting.default_value),
                        describe_allowed(setting), fmt::join(commands, ", "), setting.doc);
  }
  return page;
}

}  // namespace gimbal
