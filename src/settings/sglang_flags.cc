#include "settings/sglang_flags.h"

#include <array>

namespace gimbal {
namespace {

using Kind = SglangFlag::Kind;

constexpr std::string_view kMpirun = "ranks on several machines are started with mpirun --host";
constexpr std::string_view kRankOrder = "sums between ranks run in rank order, by Gimbal's own code";
constexpr std::string_view kNotSplit = "this axis is not split here; leave the flag out";
constexpr std::string_view kNoOverlap = "communication is not overlapped with computation in this build";
constexpr std::string_view kNoGpu = "there is no GPU part in this build";
constexpr std::string_view kNoBalancing =
    "experts are not moved while serving; record the load with --expert-load-output and start with "
    "--init-expert-location";
constexpr std::string_view kNoSpeculation = "speculative decoding is not in this build; leave the flag out";
constexpr std::string_view kNoAuthentication =
    "this build has no authentication; listen on loopback or put a proxy with authentication in front, and leave the "
    "flag out";

const std::vector<SglangFlag> kFlags = {
    {"--trust-remote-code", false, Kind::kNoEffect, "no code is ever loaded from a checkpoint"},
    {"--enable-metrics", false, Kind::kNoEffect, "/metrics is always served"},
    {"--enable-metrics-for-all-schedulers", false, Kind::kNoEffect, "/metrics is always served"},
    {"--enable-cache-report", false, Kind::kNoEffect, "cached tokens are always reported"},
    {"--disable-overlap-schedule", false, Kind::kNoEffect,
     "answers are delivered and requests admitted while a step runs, always"},
    {"--enable-mixed-chunk", false, Kind::kNoEffect, "prompt chunks and decode rows share steps anyway"},
    {"--skip-server-warmup", false, Kind::kNoEffect,
     "the first token is computed before the server says ready, always"},
    {"--max-prefill-tokens", true, Kind::kNoEffect, "--chunked-prefill-size bounds the rows of a step"},
    {"--schedule-conservativeness", true, Kind::kNoEffect,
     "a request that was admitted too early is paused and goes on later"},
    {"--model-loader-extra-config", true, Kind::kNoEffect, "files are memory-mapped"},
    {"--weight-cache-mode", true, Kind::kOnlyValues, "files are memory-mapped", {"off"}},
    {"--log-requests", false, Kind::kNoEffect, "every request has an access-log line"},
    {"--log-requests-level", true, Kind::kNoEffect, "every request has an access-log line"},
    {"--decode-log-interval", true, Kind::kNoEffect, "every request has an access-log line"},
    {"--dist-init-addr", true, Kind::kNoEffect, kMpirun},
    {"--nccl-init-addr", true, Kind::kNoEffect, kMpirun},
    {"--nccl-port", true, Kind::kNoEffect, kMpirun},
    {"--node-rank", true, Kind::kOnlyValues, kMpirun, {"0"}},
    {"--nnodes", true, Kind::kOnlyValues, kMpirun, {"1"}},
    {"--base-gpu-id", true, Kind::kNoEffect, kNoGpu},
    {"--gpu-id-step", true, Kind::kNoEffect, kNoGpu},
    {"--cuda-graph-max-bs-decode", true, Kind::kNoEffect, kNoGpu},
    {"--cuda-graph-bs", true, Kind::kNoEffect, kNoGpu},
    {"--disable-cuda-graph", false, Kind::kNoEffect, kNoGpu},
    {"--disable-custom-all-reduce", false, Kind::kNoEffect, kRankOrder},
    {"--enable-mscclpp", false, Kind::kNoEffect, kRankOrder},
    {"--enable-torch-symm-mem", false, Kind::kNoEffect, kRankOrder},
    {"--enable-symm-mem", false, Kind::kNoEffect, kRankOrder},
    {"--flashinfer-allreduce-fusion-backend", true, Kind::kNoEffect, kRankOrder},
    {"--moe-dp-size", true, Kind::kOnlyValues, kNotSplit, {"1"}},
    {"--attn-cp-size", true, Kind::kOnlyValues, kNotSplit, {"1"}},
    {"--dcp-size", true, Kind::kOnlyValues, kNotSplit, {"1"}},
    {"--decode-context-parallel-size", true, Kind::kOnlyValues, kNotSplit, {"1"}},
    {"--dwdp-size", true, Kind::kOnlyValues, kNotSplit, {"1"}},
    {"--enable-dp-lm-head", false, Kind::kNoEffect, "every DP group computes its own logits anyway"},
    {"--pp-max-micro-batch-size", true, Kind::kNoEffect,
     "decode rows are spread evenly over the micro-batches in flight"},
    {"--enable-dynamic-chunking", false, Kind::kNoEffect, "--chunked-prefill-size is the chunk of every step"},
    {"--deepep-config", true, Kind::kNoEffect, "the exchange here has no such parameters"},
    {"--deepep-dispatcher-output-dtype",
     true,
     Kind::kOnlyValues,
     "rows travel as float32, which no option changes",
     {"auto", "bf16"}},
    {"--enable-eplb", false, Kind::kNoEffect, kNoBalancing},
    {"--eplb-algorithm", true, Kind::kNoEffect, kNoBalancing},
    {"--eplb-rebalance-num-iterations", true, Kind::kNoEffect, kNoBalancing},
    {"--eplb-rebalance-layers-per-chunk", true, Kind::kNoEffect, kNoBalancing},
    {"--eplb-min-rebalancing-utilization-threshold", true, Kind::kNoEffect, kNoBalancing},
    {"--enable-two-batch-overlap", false, Kind::kNoEffect, kNoOverlap},
    {"--enable-single-batch-overlap", false, Kind::kNoEffect, kNoOverlap},
    {"--disable-shared-experts-fusion", false, Kind::kNoEffect, "the shared expert is computed apart anyway"},
    {"--enforce-shared-experts-fusion", false, Kind::kNoEffect,
     "the shared expert is computed apart; the sum is the same"},
    {"--elastic-ep-initial-size", true, Kind::kRefused, kNoBalancing},
    {"--max-ep-size", true, Kind::kRefused, kNoBalancing},
    {"--elastic-ep-join-mode", true, Kind::kRefused, kNoBalancing},
    {"--elastic-ep-join-rank-offset", true, Kind::kRefused, kNoBalancing},
    {"--elastic-ep-scale-timeout", true, Kind::kNoEffect, kNoBalancing},
    {"--deepep-v2-mode", true, Kind::kNoEffect, "the exchange here has no such parameters"},
    {"--shared-experts-tp-size", true, Kind::kOnlyValues, "--moe-dense-tp-size covers the shared expert", {"none"}},
    {"--expert-balancedness-report-mode", true, Kind::kNoEffect, "--expert-load-output writes the load"},
    {"--elastic-ep-backend", true, Kind::kOnlyValues, kNoBalancing, {"none"}},
    {"--schedule-policy", true, Kind::kOnlyValues, "requests are admitted by priority and time of arrival", {"fcfs"}},
    {"--quantization-param-path", true, Kind::kRefused, "KV pages are float32; leave the flag out"},
    {"--tool-call-parser", true, Kind::kNoEffect, "requests with tools are refused by this build"},
    {"--reasoning-parser", true, Kind::kNoEffect, "reasoning stays part of the content in this build"},
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
