// A folder with random weights of any dimensions, in the form of a published checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "base/result.h"

namespace gimbal {

struct SyntheticCheckpointArgs {
  std::string config_text;            // a config.json; its quantization_config is replaced
  std::string quantization = "int4";  // "int4", "bf16" or "fp8"
  uint64_t seed = 0;
  uint64_t shard_bytes = 5'000'000'000;  // a shard ends before the tensor that would exceed it
  int num_threads = 1;                   // without influence on the bytes
  std::filesystem::path output;          // must not exist, or be an empty folder
  std::filesystem::path tokenizer_dir;   // its tokenizer files are copied; empty: none
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> on_progress;  // on the calling thread
};

struct SyntheticCheckpoint {
  uint64_t num_shards = 0;
  uint64_t num_tensors = 0;
  uint64_t tensor_bytes = 0;
};

// Writes shards, index and config.json to a temporary folder beside `output` and renames it at the end: a run that is
// killed leaves no folder of that name. Memory: about 100 MB and the plan. Refused: an output that holds files, too
// little disk space, a config that parse_model_config refuses.
Result<SyntheticCheckpoint> write_synthetic_checkpoint(const SyntheticCheckpointArgs& args);

}  // namespace gimbal
