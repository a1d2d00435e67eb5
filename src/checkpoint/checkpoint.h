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
#include "checkpoint/safetensors_reader.h"
#include "model_config/model_config.h"
#include "parallel/weight_plan.h"

namespace gimbal {

// Bytes of one stored tensor inside the map of its shard; valid as long as the Checkpoint lives. May be unaligned.
struct StoredTensor {
  DataType data_type = DataType::kFloat32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

// Opens every shard, maps it, and checks the whole against config and weight plan before any tensor is touched: after a successful open
// every tensor of `plan()` exists with an allowed type, the right shape and size. All problems come in one error, grouped.
// Thread-safe for reading after open.
class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::filesystem::path& model_dir, const ModelConfig& config);

  const WeightPlan& plan() const { return plan_; }
  // `name` is canonical, as in PlannedTensor. The tensor must be in the plan.
  StoredTensor tensor(std::string_view name) const;
  uint64_t total_bytes() const;  // of all shards, headers included
  // Lines a person should see once: stray tensors skipped, config and tensors that disagree on what is quantized, stray shards.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Location {
    uint32_t shard = 0;
    uint32_t entry = 0;
  };
  WeightPlan plan_;
  std::vector<std::string> notes_;
  std::vector<std::vector<SafetensorsEntry>> headers_;  // per shard
  std::vector<MappedFile> maps_;                        // per shard
  std::unordered_map<std::string, Location> locations_;  // by canonical name
};

}  // namespace gimbal
