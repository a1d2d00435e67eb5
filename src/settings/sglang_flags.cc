#include "settings/sglang_flags.h"

#include <array>

namespace gimbal {
namespace {

using Kind = SglangFlag::Kind;

constexpr std::string_view kOneRank = "this build runs one rank";
constexpr std::string_view kNoGpu = "there is no GPU part in this build";
constexpr std::string_view kNoBalancing = "experts are not moved or copied in this build";
constexpr std::string_view kNoSpeculation = "speculative decoding is not in this build; leave the flag out";
constexpr std::string_view kNoAuthentication =
    "this build has no authentication; listen on loopback or put a proxy with authentication in front, and leave the "
    "flag out";

const std::vector<SglangFlag> kFlags = {
    {"--trust-remote-code", false, Kind::kNoEffect, "no code is ever loaded from a checkpoint"},
    {"--watchdog-timeout", true, Kind::kNoEffect, "there is no watchdog in this build"},
    {"--soft-watchdog-timeout", true, Kind::kNoEffect, "there is no watchdog in this build"},
    {"--enable-metrics", false, Kind::kNoEffect, "there is no /metrics in this build"},
    {"--enable-metrics-for-all-schedulers", false, Kind::kNoEffect, "there is no /metrics in this build"},
    {"--enable-cache-report", false, Kind::kNoEffect, "there is no prefix cache in this build"},
    {"--disable-radix-cache", false, Kind::kNoEffect, "there is no prefix cache in this build"},
    {"--disable-overlap-schedule", false, Kind::kNoEffect, "steps are planned one after the other anyway"},
    {"--enable-mixed-chunk", false, Kind::kNoEffect, "prompt chunks and decode rows share steps anyway"},
    {"--skip-server-warmup", false, Kind::kNoEffect,
     "the first token is computed before the server says ready, always"},
    {"--max-prefill-tokens", true, Kind::kNoEffect, "--chunked-prefill-size bounds the rows of a step"},
    {"--schedule-conservativeness", true, Kind::kNoEffect, "pages for the whole answer are taken at admission"},
    {"--model-loader-extra-config", true, Kind::kNoEffect, "files are memory-mapped"},
    {"--weight-cache-mode", true, Kind::kOnlyValues, "files are memory-mapped", {"off"}},
    {"--log-requests", false, Kind::kNoEffect, "every request has an access-log line"},
    {"--log-requests-level", true, Kind::kNoEffect, "every request has an access-log line"},
    {"--decode-log-interval", true, Kind::kNoEffect, "every request has an access-log line"},
    {"--dist-timeout", true, Kind::kNoEffect, kOneRank},
    {"--dist-init-addr", true, Kind::kNoEffect, kOneRank},
    {"--nccl-init-addr", true, Kind::kNoEffect, kOneRank},
    {"--nccl-port", true, Kind::kNoEffect, kOneRank},
    {"--node-rank", true, Kind::kOnlyValues, kOneRank, {"0"}},
    {"--nnodes", true, Kind::kOnlyValues, kOneRank, {"1"}},
    {"--load-balance-method", true, Kind::kNoEffect, kOneRank},
    {"--base-gpu-id", true, Kind::kNoEffect, kNoGpu},
    {"--gpu-id-step", true, Kind::kNoEffect, kNoGpu},
    {"--cuda-graph-max-bs-decode", true, Kind::kNoEffect, kNoGpu},
    {"--cuda-graph-bs", true, Kind::kNoEffect, kNoGpu},
    {"--disable-cuda-graph", false, Kind::kNoEffect, kNoGpu},
    {"--disable-custom-all-reduce", false, Kind::kNoEffect, kOneRank},
    {"--enable-mscclpp", false, Kind::kNoEffect, kOneRank},
    {"--enable-torch-symm-mem", false, Kind::kNoEffect, kOneRank},
    {"--enable-symm-mem", false, Kind::kNoEffect, kOneRank},
    {"--flashinfer-allreduce-fusion-backend", true, Kind::kNoEffect, kOneRank},
    {"--moe-dense-tp-size", true, Kind::kOnlyValues, kOneRank, {"1", "none"}},
    {"--moe-dp-size", true, Kind::kOnlyValues, kOneRank, {"1"}},
    {"--attn-cp-size", true, Kind::kOnlyValues, kOneRank, {"1"}},
    {"--attn-dp-size", true, Kind::kOnlyValues, kOneRank, {"1"}},
    {"--dcp-size", true, Kind::kOnlyValues, kOneRank, {"1"}},
    {"--decode-context-parallel-size", true, Kind::kOnlyValues, kOneRank, {"1"}},
    {"--dwdp-size", true, Kind::kOnlyValues, kOneRank, {"1"}},
    {"--enable-dp-attention", false, Kind::kNoEffect, kOneRank},
    {"--enable-dp-lm-head", false, Kind::kNoEffect, kOneRank},
    {"--pp-max-micro-batch-size", true, Kind::kNoEffect, kOneRank},
    {"--pp-async-batch-depth", true, Kind::kNoEffect, kOneRank},
    {"--enable-dynamic-chunking", false, Kind::kNoEffect, kOneRank},
    {"--moe-a2a-backend", true, Kind::kOnlyValues, "one rank holds all experts, no tokens are exchanged", {"none"}},
    {"--deepep-mode", true, Kind::kNoEffect, "no tokens are exchanged by one rank"},
    {"--deepep-config", true, Kind::kNoEffect, "no tokens are exchanged by one rank"},
    {"--deepep-dispatcher-output-dtype",
     true,
     Kind::kOnlyValues,
     "no tokens are exchanged by one rank",
     {"auto", "bf16"}},
    {"--ep-num-redundant-experts", true, Kind::kOnlyValues, kNoBalancing, {"0"}},
    {"--ep-dispatch-algorithm", true, Kind::kNoEffect, kNoBalancing},
    {"--init-expert-location", true, Kind::kOnlyValues, kNoBalancing, {"trivial"}},
    {"--enable-eplb", false, Kind::kNoEffect, kNoBalancing},
    {"--eplb-algorithm", true, Kind::kNoEffect, kNoBalancing},
    {"--eplb-rebalance-num-iterations", true, Kind::kNoEffect, kNoBalancing},
    {"--eplb-rebalance-layers-per-chunk", true, Kind::kNoEffect, kNoBalancing},
    {"--eplb-min-rebalancing-utilization-threshold", true, Kind::kNoEffect, kNoBalancing},
    {"--enable-two-batch-overlap", false, Kind::kNoEffect, kOneRank},
    {"--enable-single-batch-overlap", false, Kind::kNoEffect, kOneRank},
    {"--disable-shared-experts-fusion", false, Kind::kNoEffect, "the shared expert is computed apart anyway"},
    {"--enforce-shared-experts-fusion", false, Kind::kNoEffect,
     "the shared expert is computed apart; the sum is the same"},
    {"--elastic-ep-backend", true, Kind::kOnlyValues, kOneRank, {"none"}},
    {"--schedule-policy", true, Kind::kOnlyValues, "requests are admitted first come, first served", {"fcfs"}},
    {"--quantization-param-path", true, Kind::kRefused, "KV pages are float32; leave the flag out"},
    {"--api-key", true, Kind::kRefused, kNoAuthentication},
    {"--admin-api-key", true, Kind::kRefused, kNoAuthentication},
    {"--ssl-certfile", true, Kind::kRefused,
     "this build speaks plain HTTP; put a proxy with TLS in front and leave the flag out"},
    {"--ssl-keyfile", true, Kind::kRefused,
     "this build speaks plain HTTP; put a proxy with TLS in front and leave the flag out"},
    {"--tool-call-parser", true, Kind::kNoEffect, "requests with tools are refused by this build"},
    {"--reasoning-parser", true, Kind::kNoEffect, "reasoning stays part of the content in this build"},
    {"--incremental-streaming-output", false, Kind::kRefused,
     "/generate streams the cumulative text; leave the flag out"},
    {"--sampling-defaults", true, Kind::kOnlyValues, "defaults come from generation_config.json", {"model"}},
    {"--enable-lora", false, Kind::kRefused, "LoRA is not in this build; leave the flag out"},
    {"--lora-paths", true, Kind::kRefused, "LoRA is not in this build; leave the flag out"},
    {"--speculative-algorithm", true, Kind::kRefused, kNoSpeculation},
    {"--speculative-draft-model-path", true, Kind::kRefused, kNoSpeculation},
    {"--speculative-num-steps", true, Kind::kRefused, kNoSpeculation},
    {"--speculative-eagle-topk", true, Kind::kRefused, kNoSpeculation},
    {"--speculative-num-draft-tokens", true, Kind::kRefused, kNoSpeculation},
};

}  // namespace

std::span<const SglangFlag> sglang_flags() { return kFlags; }

std::span<const RenamedFlag> renamed_flags() {
  static constexpr std::array kRenamed = std::to_array<RenamedFlag>({
      {"--enable-ep-moe", "It was replaced by --ep-size N."},
      {"--enable-deepep-moe", "It was replaced by --moe-a2a-backend deepep with --ep-size N."},
      {"--log-request-level", "SGLang calls it --log-requests-level; it has no effect here."},
      {"--cuda-graph-max-bs", "It was replaced by --cuda-graph-max-bs-decode; it has no effect here, leave it out."},
      {"--stream-output", "It was replaced by --incremental-streaming-output."},
      {"--torchao-config", "It is gone from SGLang and has no counterpart here; leave it out."},
      {"--api-keys", "SGLang calls it --api-key."},
  });
  return kRenamed;
}

}  // namespace gimbal
