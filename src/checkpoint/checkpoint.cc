#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"
#include "base/thread_team.h"
#include "checkpoint/checkpoint_survey.h"
#include "checkpoint/random_weights.h"

namespace gimbal {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kPartBytes = uint64_t{4} << 20;

int64_t read_integer(const StoredTensor& tensor, size_t index) {
  if (tensor.data_type == DataType::kInt32) {
    int32_t value = 0;
    std::memcpy(&value, tensor.bytes.data() + index * sizeof(value), sizeof(value));
    return value;
  }
  int64_t value = 0;
  std::memcpy(&value, tensor.bytes.data() + index * sizeof(value), sizeof(value));
  return value;
}

// A piece of a tensor that one task fills.
struct Part {
  const PlannedWeight* weight;
  size_t index;
  uint64_t begin;
  std::span<std::byte> bytes;
};

}  // namespace

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& model_dir, const ModelConfig& config) {
  CheckpointSurvey survey = survey_checkpoint(model_dir, config);
  if (!survey.problems.empty()) return fail(describe_problems(model_dir.string(), survey.problems));
  Checkpoint checkpoint;
  for (const SurveyedShard& shard : survey.shards) {
    GIMBAL_ASSIGN_OR_RETURN(MappedFile map, MappedFile::open(model_dir / shard.file));
    if (map.bytes().size() != shard.file_bytes) {
      return fail(Error::failed(
          fmt::format("{} changed while it was opened: {} bytes, then {}. Start again when it is complete.",
                      (model_dir / shard.file).string(), shard.file_bytes, map.bytes().size())));
    }
    checkpoint.maps_.push_back(std::move(map));
  }
  checkpoint.plan_ = std::move(survey.plan);
  checkpoint.notes_ = std::move(survey.notes);
  checkpoint.total_bytes_ = survey.total_bytes;
  checkpoint.tensors_.reserve(survey.locations.size());
  for (const auto& [name, location] : survey.locations) {
    SafetensorsEntry& entry = survey.shards[location.shard].entries[location.entry];
    const auto bytes = checkpoint.maps_[location.shard].bytes().subspan(entry.begin, entry.bytes);
    checkpoint.tensors_.emplace(name, StoredTensor{entry.data_type, std::move(entry.shape), bytes});
  }
  GIMBAL_RETURN_IF_ERROR(checkpoint.check_weight_shapes(model_dir.string()));
  return checkpoint;
}

Result<Checkpoint> Checkpoint::make_dummy(const ModelConfig& config, uint64_t seed, int num_threads) {
  if (config.quantization.method == QuantizationConfig::Method::kInt4Group && config.quantization.num_bits != 4) {
    return fail(Error::invalid(fmt::format(
        "config.json asks for num_bits {}; random weights are made with 4 bits only.", config.quantization.num_bits)));
  }
  Checkpoint checkpoint;
  checkpoint.plan_ = make_weight_plan(config);
  uint64_t total = 0;
  for (const PlannedWeight& weight : checkpoint.plan_.weights) {
    for (const PlannedTensor& tensor : weight.tensors)
      total += (tensor.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  GIMBAL_ASSIGN_OR_RETURN(checkpoint.memory_, HostBuffer::allocate(total));
  checkpoint.total_bytes_ = total;
  std::vector<Part> parts;
  std::byte* at = checkpoint.memory_.data();
  for (const PlannedWeight& weight : checkpoint.plan_.weights) {
    for (size_t i = 0; i < weight.tensors.size(); ++i) {
      const PlannedTensor& tensor = weight.tensors[i];
      const std::span<std::byte> bytes(at, tensor.bytes());
      checkpoint.tensors_.emplace(tensor.name, StoredTensor{tensor.data_types.front(), tensor.shape, bytes});
      for (uint64_t begin = 0; begin < bytes.size(); begin += kPartBytes) {
        parts.push_back({&weight, i, begin, bytes.subspan(begin, std::min(kPartBytes, bytes.size() - begin))});
      }
      at += (bytes.size() + kAlignment - 1) / kAlignment * kAlignment;
    }
  }
  ThreadTeam team(std::max(num_threads, 1));
  team.run(static_cast<int64_t>(parts.size()), [&](int64_t task, int) {
    const Part& part = parts[static_cast<size_t>(task)];
    fill_random_tensor(*part.weight, part.index, seed, part.begin, part.bytes);
  });
  return checkpoint;
}

const StoredTensor& Checkpoint::tensor(std::string_view name) const {
  const auto it = tensors_.find(std::string(name));
  if (it == tensors_.end()) check_failed("tensor is in the plan", name, __FILE__, __LINE__);
  return it->second;
}

Status Checkpoint::check_weight_shapes(std::string_view model_dir) const {
  uint64_t num_wrong = 0;
  std::string example;
  for (const PlannedWeight& weight : plan_.weights) {
    if (weight.format != WeightFormat::kInt4Group) continue;
    const std::string& name = weight.tensors[2].name;
    const StoredTensor& stored = tensor(name);
    const int64_t rows = read_integer(stored, 0);
    const int64_t columns = read_integer(stored, 1);
    if (rows == weight.rows && columns == weight.columns) continue;
    if (num_wrong++ == 0) {
      example = fmt::format("{} says [{}, {}], config.json asks for [{}, {}]", name, rows, columns, weight.rows,
                            weight.columns);
    }
  }
  if (num_wrong == 0) return {};
  return fail(
      Error::invalid(fmt::format("The checkpoint in {} cannot be used: {} weight_shape tensors hold another shape than "
                                 "config.json asks for; {}. The packed words can then not be read safely; download the "
                                 "checkpoint or its config.json again.",
                                 model_dir, num_wrong, example),
                     "--model-path"));
}

}  // namespace gimbal
