// WeightIndex: which files of a model folder hold its tensors, according to the index file or to the file names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "checkpoint/checkpoint_problem.h"

namespace gimbal {

inline constexpr const char* kIndexFileName = "model.safetensors.index.json";

// With an index file, the index is the authority: other *.safetensors files are not read. Without one, a single
// model.safetensors or a complete set model-00001-of-N .. model-N-of-N stands for itself.
struct WeightIndex {
  bool has_index_file = false;
  std::vector<std::string> shards;          // file names that exist, sorted
  std::vector<std::string> missing_shards;  // named by the index, not in the folder
  std::vector<std::string> unused_shards;   // *.safetensors in the folder that no one names
  // Stored tensor name to file name; empty without an index file.
  std::unordered_map<std::string, std::string> shard_of;
  std::vector<std::string> notes;
};

// An error when the folder or the index cannot be read at all, holds no weights, or an index entry is malformed or
// leads out of the folder. Missing shards are listed, not refused: the caller can say which tensors they cost.
Result<WeightIndex> read_weight_index(const std::filesystem::path& model_dir);

// N of "...-of-N.safetensors"; 0 for other names.
int64_t announced_shard_count(std::string_view file_name);

}  // namespace gimbal
