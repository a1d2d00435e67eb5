// Settings: the values of one run, after defaults, command line and validation. What each means, its default and its
// range stand in settings_table.cc, once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gimbal {

// Plain values; read-only after parsing. Empty strings and -1 mean "derive it", as the table says per setting.
struct Settings {
  // Model and loading
  std::string model_path;         // --model-path (--model)
  std::string tokenizer_path;     // --tokenizer-path; empty: model_path
  std::string load_format;        // --load-format auto|safetensors|dummy
  std::string served_model_name;  // --served-model-name; empty: last part of model_path
  std::string chat_template;      // --chat-template auto|kimi-k2|kimi-k2-thinking|kimi-k2.5|kimi-k2.6
  double latent_norm_eps = -1;    // --latent-norm-eps of q_a/kv_a norms; -1: rms_norm_eps of config.json
  int64_t weight_seed = 0;        // --weight-seed of dummy weights

  // Server
  std::string host;
  int64_t port = 0;
  int64_t max_queued_requests = 0;            // --max-queued-requests
  int64_t max_body_bytes = 0;                 // --max-body-bytes
  int64_t max_connections = 0;                // --max-connections
  double idle_timeout_s = 0;                  // --idle-timeout-s of a connection
  double request_timeout_s = 0;               // --request-timeout-s for receiving head and body of one request
  double drain_timeout_s = 0;                 // --drain-timeout-s after SIGTERM
  double request_deadline_s = -1;             // --request-deadline-s for a whole answer; -1: none
  double soft_watchdog_timeout_s = 0;         // --soft-watchdog-timeout until /health is red
  double watchdog_timeout_s = 0;              // --watchdog-timeout until the process ends
  std::string api_key;                        // --api-key; empty: no key
  std::string admin_api_key;                  // --admin-api-key; empty: api_key
  std::string ssl_certfile;                   // --ssl-certfile
  std::string ssl_keyfile;                    // --ssl-keyfile
  std::string cors_origin;                    // --cors-origin
  bool incremental_streaming_output = false;  // --incremental-streaming-output

  // Memory and scheduling
  int64_t context_length = -1;        // --context-length; -1: max_position_embeddings
  int64_t page_size = 0;              // --page-size, tokens
  double mem_fraction_static = 0;     // --mem-fraction-static
  int64_t max_total_tokens = -1;      // --max-total-tokens of KV; -1: from memory
  double kv_host_ratio = 0;           // --kv-host-ratio of the KV pool, for paused requests
  bool disable_radix_cache = false;   // --disable-radix-cache
  int64_t priority_aging_ms = 0;      // --priority-aging-ms
  int64_t max_running_requests = -1;  // --max-running-requests
  int64_t chunked_prefill_size = 0;   // --chunked-prefill-size; -1: whole prompts
  std::string kv_cache_dtype;         // --kv-cache-dtype auto|float32

  // Computation
  std::string device;              // --device cpu|auto
  int64_t num_threads = -1;        // --threads; -1: usable processors
  std::string activation_dtype;    // --activation-dtype float32
  bool deterministic = false;      // --deterministic (--enable-deterministic-inference)
  std::string op_backend;          // --op-backend auto|cpu|reference
  std::string attention_backend;   // --attention-backend auto|cpu|reference
  std::string moe_runner_backend;  // --moe-runner-backend auto|cpu_simd|reference

  // Parallel layout; parallel/layout_flags.cc reads these together
  std::string layout;                 // --layout NAME; empty: from the sizes below
  int64_t tp_size = -1;               // --tp-size ranks of a stage; -1: not given
  int64_t pp_size = -1;               // --pp-size stages
  int64_t dp_size = -1;               // --dp-size attention data-parallel groups
  int64_t ep_size = -1;               // --ep-size expert-parallel ranks of a stage
  bool enable_dp_attention = false;   // --enable-dp-attention
  std::string moe_dense_tp_size;      // --moe-dense-tp-size none|N
  std::string pp_layer_partition;     // --pp-layer-partition 15,15,15,16; empty: even by cost
  int64_t pp_async_batch_depth = 0;   // --pp-async-batch-depth, micro-batches in flight beyond one per stage
  std::string load_balance_method;    // --load-balance-method of sequences over DP groups
  std::string moe_a2a_backend;        // --moe-a2a-backend; auto: the layout's
  std::string deepep_mode;            // --deepep-mode auto|normal|low_latency
  int64_t low_latency_slots = -1;     // --low-latency-slots, tokens per rank; -1: as many as a step can bring
  int64_t num_redundant_experts = 0;  // --ep-num-redundant-experts
  std::string ep_dispatch_algorithm;  // --ep-dispatch-algorithm auto|static|dynamic
  std::string init_expert_location;   // --init-expert-location trivial|FILE
  std::string expert_load_output;     // --expert-load-output FILE
  std::string comm;                   // --comm auto|thread|mpi
  double comm_timeout_s = 0;          // --comm-timeout-s of every call between ranks

  // generate, score
  std::string prompt;          // --prompt
  std::string input;           // --input FILE.jsonl
  std::string output;          // --output FILE.jsonl (score) or folder (synth)
  int64_t max_new_tokens = 0;  // --max-new-tokens
  double temperature = 0;      // --temperature
  double top_p = 1;            // --top-p
  int64_t top_k = 0;           // --top-k
  double min_p = 0;            // --min-p
  int64_t seed = 0;            // --seed, of sampling and of synth
  bool ignore_eos = false;     // --ignore-eos
  int64_t top_logits = 0;      // --top-logits

  // synth
  std::string model_config;  // --model-config FILE
  std::string quantization;  // --quantization int4|bf16|fp8 (synth); read from the config elsewhere
  int64_t shard_bytes = 0;   // --shard-bytes

  // General
  std::string log_level;    // --log-level
  bool print_json = false;  // --json
  // Printed once at start and shown by /server_info: aliases that were mapped, flags accepted without effect, derived
  // defaults.
  std::vector<std::string> notes;
};

}  // namespace gimbal
