// Checkpoint: the shards of a model folder, their headers read and reconciled with the index and the weight plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "checkpoint/mapped_file.h"
#include "model_config/model_config.h"
#include "parallel/weight_plan.h"
#include "tensor/data_type.h"
#include "tensor/host_buffer.h"

namespace gimbal {

// Bytes of one stored tensor inside the map of its shard; valid as long as the Checkpoint lives. They may be unaligned
// (safetensors promises no alignment of single tensors): copy with memcpy, or copy to aligned memory before use.
struct StoredTensor {
  DataType data_type = DataType::kFloat32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

// All tensors of a model: the maps of a folder's shards, or memory filled with random weights. After a successful open
// every tensor of `plan()` exists with an allowed type, the right shape and size. Movable. Thread-safe for reading.
class Checkpoint {
 public:
  // Checks the headers of all shards against config and weight plan before anything is mapped; then maps the shards and
  // compares the stored weight_shape values. All problems come in one error (kind kInvalidRequest), grouped, about 25
  // lines at most.
  static Result<Checkpoint> open(const std::filesystem::path& model_dir, const ModelConfig& config);

  // Random weights in owned memory, in the formats that `config` announces: the tensors that `synth` would write for
  // the same config and seed. Takes plan.total_bytes of memory (make_weight_plan tells before), filled by
  // `num_threads`.
  static Result<Checkpoint> make_dummy(const ModelConfig& config, uint64_t seed, int num_threads = 1);

  const WeightPlan& plan() const { return plan_; }
  // `name` is canonical, as in PlannedTensor. The tensor must be in the plan.
  const StoredTensor& tensor(std::string_view name) const;
  uint64_t total_bytes() const { return total_bytes_; }  // of all shards, headers included
  // Lines a person should see once: stray tensors skipped, config and tensors that disagree on what is quantized, stray
  // shards.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  Status check_weight_shapes(std::string_view model_dir) const;

  WeightPlan plan_;
  std::vector<std::string> notes_;
  uint64_t total_bytes_ = 0;
  std::vector<MappedFile> maps_;                           // one per shard
  HostBuffer memory_;                                      // of random weights
  std::unordered_map<std::string, StoredTensor> tensors_;  // by canonical name; bytes point into maps_ or memory_
};

}  // namespace gimbal
