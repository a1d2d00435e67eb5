// CheckpointSurvey: what the headers of a model folder say, compared with config.json. Reads headers only, maps
// nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/checkpoint_problem.h"
#include "checkpoint/safetensors_reader.h"
#include "model_config/model_config.h"
#include "parallel/weight_plan.h"

namespace gimbal {

struct SurveyedShard {
  std::string file;         // name in the model folder
  uint64_t file_bytes = 0;  // header and data
  std::vector<SafetensorsEntry> entries;
};

struct CheckpointSurvey {
  std::vector<SurveyedShard> shards;  // those whose header could be read
  uint64_t num_tensors = 0;           // stored in them
  uint64_t total_bytes = 0;           // of their files
  WeightPlan plan;                    // with the formats found
  std::vector<CheckpointProblem>
      problems;                    // empty: every planned tensor exists with an allowed type and the right shape
  std::vector<std::string> notes;  // one line each

  // nullptr when no shard holds it. `name` is canonical.
  const SafetensorsEntry* find(std::string_view name) const;

  struct Location {
    uint32_t shard = 0;
    uint32_t entry = 0;
  };
  // Hashes std::string and std::string_view alike, so that a lookup makes no copy of the name.
  struct NameHash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };
  std::unordered_map<std::string, Location, NameHash, std::equal_to<>> locations;  // by canonical name
};

// All faults come as `problems`, grouped: folder, index, headers, duplicates, missing and stray tensors, types, shapes.
CheckpointSurvey survey_checkpoint(const std::filesystem::path& model_dir, const ModelConfig& config);

}  // namespace gimbal
