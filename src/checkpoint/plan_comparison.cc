#include "checkpoint/plan_comparison.h"

#include <array>
#include <map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/byte_size.h"
#include "checkpoint/shape_source.h"
#include "checkpoint/tensor_name.h"
#include "quantization/weight_matrix.h"

namespace gimbal {
namespace {

constexpr size_t kMaxNameLines = 8;
constexpr size_t kMaxNoteNames = 4;

bool is_quantized(WeightFormat format) {
  return format == WeightFormat::kInt4Group || format == WeightFormat::kFloat8Block;
}

WeightFormat plain_format(DataType type) {
  switch (type) {
    case DataType::kFloat8E4M3:
      return WeightFormat::kFloat8Block;
    case DataType::kFloat32:
      return WeightFormat::kFloat32;
    case DataType::kFloat16:
      return WeightFormat::kFloat16;
    default:
      return WeightFormat::kBFloat16;  // a type that no weight may have is then met by the type check
  }
}

// Modules whose stored format is not the announced one, by (announced, stored).
using Disagreements = std::map<std::pair<WeightFormat, WeightFormat>, std::vector<std::string>>;

void note_disagreements(const Disagreements& disagreements, CheckpointSurvey& survey) {
  for (const auto& [formats, modules] : disagreements) {
    survey.notes.push_back(fmt::format(
        "config.json and the tensors disagree on what is quantized: {} matrices are announced as {} and stored as {}; "
        "what is stored is used: {}.",
        modules.size(), name_of(formats.first), name_of(formats.second),
        fmt::join(collapse_names(modules, kMaxNoteNames), "; ")));
  }
}

WeightPlan make_stored_plan(const ModelConfig& config, CheckpointSurvey& survey) {
  Disagreements disagreements;
  const auto format_of = [&](std::string_view module, WeightFormat announced) {
    const std::string name(module);
    WeightFormat stored = announced;
    if (survey.find(name + ".weight_packed") != nullptr) {
      stored = WeightFormat::kInt4Group;
    } else if (const SafetensorsEntry* entry = survey.find(name + ".weight")) {
      stored = plain_format(entry->data_type);
    }
    if (stored != announced && (is_quantized(stored) || is_quantized(announced))) {
      disagreements[{announced, stored}].push_back(name);
    }
    return stored;
  };
  WeightPlan plan = make_weight_plan(config, format_of);
  note_disagreements(disagreements, survey);
  return plan;
}

// Tensors that fail in the same way: one is told in full, the rest are counted.
struct FaultGroup {
  CheckpointProblem problem;
  std::string others;  // what the counted ones have in common
};
using FaultGroups = std::map<std::string, FaultGroup>;

void add_fault(FaultGroups& groups, const std::string& key, FaultGroup&& fault) {
  const auto [it, is_new] = groups.try_emplace(key, std::move(fault));
  if (!is_new) ++it->second.problem.count;
}

void append_faults(FaultGroups& groups, CheckpointSurvey& survey) {
  for (auto& [key, group] : groups) {
    if (group.problem.count > 1) {
      group.problem.message += fmt::format(" {} more {} differ in this way.", group.problem.count - 1, group.others);
    }
    survey.problems.push_back(std::move(group.problem));
  }
}

// For packed words: the bit width that the found size fits.
std::string describe_found_bits(const PlannedWeight& weight, size_t index, const SafetensorsEntry& entry) {
  if (weight.format != WeightFormat::kInt4Group || index != 0 || entry.shape.size() != 2) return "";
  for (const int64_t bits : {2, 3, 4, 8}) {
    if (entry.shape[0] == weight.rows && entry.shape[1] == ceil_div(weight.columns * bits, 32)) {
      return fmt::format(" The size found fits num_bits {}.", bits);
    }
  }
  return "";
}

class PlanComparison {
 public:
  PlanComparison(const ModelConfig& config, CheckpointSurvey& survey) : config_(config), survey_(survey) {}

  void compare(const std::function<bool(std::string_view)>& is_excused) {
    for (const PlannedWeight& weight : survey_.plan.weights) {
      for (size_t i = 0; i < weight.tensors.size(); ++i) {
        const PlannedTensor& tensor = weight.tensors[i];
        planned_.insert(tensor.name);
        const SafetensorsEntry* entry = survey_.find(tensor.name);
        if (entry != nullptr) {
          compare_one(weight, i, *entry);
        } else if (!is_excused(tensor.name)) {
          missing_.push_back(tensor.name);
        }
      }
    }
    report_missing();
    append_faults(types_, survey_);
    append_faults(shapes_, survey_);
    if (shapes_.empty()) check_quantization();
    sort_unplanned();
  }

 private:
  void compare_one(const PlannedWeight& weight, size_t index, const SafetensorsEntry& entry) {
    const PlannedTensor& tensor = weight.tensors[index];
    const std::string suffix = tensor.name.substr(tensor.name.rfind('.') + 1);
    const std::string kind =
        is_quantized(weight.format) ? suffix : fmt::format("{} {}", static_cast<int>(weight.role), suffix);
    bool is_allowed = false;
    std::vector<std::string_view> allowed;
    for (const DataType type : tensor.data_types) {
      is_allowed = is_allowed || type == entry.data_type;
      allowed.push_back(safetensors_name(type));
    }
    if (!is_allowed) {
      add_fault(types_, fmt::format("{} {}", kind, safetensors_name(entry.data_type)),
                {{"type", 1, entry.name,
                  fmt::format("{} has type {}, expected {}.", entry.name, safetensors_name(entry.data_type),
                              fmt::join(allowed, " or "))},
                 suffix + " tensors"});
    }
    if (entry.shape != tensor.shape) {
      add_fault(
          shapes_, kind,
          {{"shape", 1, entry.name,
            fmt::format("{} has shape {}, expected {} from config.json ({}).{}", entry.name, entry.shape, tensor.shape,
                        describe_shape_source(weight, index, config_), describe_found_bits(weight, index, entry))},
           suffix + " tensors"});
    }
  }

  void report_missing() {
    if (missing_.empty()) return;
    const std::vector<std::string> lines = collapse_names(missing_, kMaxNameLines);
    survey_.problems.push_back(
        {"missing", missing_.size(), missing_.front(),
         fmt::format("{} tensors that config.json asks for are in no shard. Download the checkpoint again or "
                     "correct config.json:\n    {}",
                     missing_.size(), fmt::join(lines, "\n    "))});
  }

  // Formats this build cannot compute although shapes and types agree with config.json.
  void check_quantization() {
    const QuantizationConfig& quantization = config_.quantization;
    for (const PlannedWeight& weight : survey_.plan.weights) {
      const bool is_int4 = weight.format == WeightFormat::kInt4Group;
      if (is_int4 && quantization.num_bits != 4) {
        survey_.problems.push_back(
            {"quantization", 1, weight.module,
             fmt::format("config.json says num_bits {} for packed weights such as {}; only 4 is offered.",
                         quantization.num_bits, weight.module)});
        return;
      }
      if (weight.format == WeightFormat::kFloat8Block &&
          (quantization.block_rows != kFloat8BlockSize || quantization.block_columns != kFloat8BlockSize)) {
        survey_.problems.push_back(
            {"quantization", 1, weight.module,
             fmt::format(
                 "config.json says weight_block_size [{}, {}] for float8 weights such as {}; only [{}, {}] is offered.",
                 quantization.block_rows, quantization.block_columns, weight.module, kFloat8BlockSize,
                 kFloat8BlockSize)});
        return;
      }
    }
  }

  struct Skipped {
    uint64_t count = 0;
    uint64_t bytes = 0;
  };

  void sort_unplanned() {
    std::vector<std::string> strays;
    std::vector<std::string> unsupported;
    std::array<Skipped, 4> skipped;
    for (const SurveyedShard& shard : survey_.shards) {
      for (const SafetensorsEntry& entry : shard.entries) {
        const std::string name = canonical_tensor_name(entry.name);
        if (planned_.contains(name)) continue;
        const SkipReason reason = skip_reason(name, config_);
        if (reason != SkipReason::kNone) {
          ++skipped[static_cast<size_t>(reason)].count;
          skipped[static_cast<size_t>(reason)].bytes += entry.bytes;
        } else if (name.ends_with(".weight_zero_point") || name.ends_with(".weight_g_idx")) {
          unsupported.push_back(entry.name);
        } else {
          strays.push_back(entry.name);
        }
      }
    }
    note_skipped(skipped);
    report_unplanned(unsupported, strays);
  }

  void note_skipped(const std::array<Skipped, 4>& skipped) {
    constexpr std::array<std::string_view, 4> kWhat = {
        "", "vision tensors were skipped: this build serves text only",
        "tensors of multi-token-prediction layers were skipped: they are not used for plain decoding",
        "rotary_emb.inv_freq tensors were skipped: the frequencies follow from config.json"};
    for (size_t i = 1; i < skipped.size(); ++i) {
      if (skipped[i].count == 0) continue;
      survey_.notes.push_back(fmt::format("{} {} ({}).", skipped[i].count, kWhat[i], format_bytes(skipped[i].bytes)));
    }
  }

  void report_unplanned(const std::vector<std::string>& unsupported, const std::vector<std::string>& strays) {
    if (!unsupported.empty()) {
      survey_.problems.push_back(
          {"quantization", unsupported.size(), unsupported.front(),
           fmt::format("{} tensors belong to a kind of quantization that is not offered: weight_zero_point means "
                       "asymmetric codes, "
                       "weight_g_idx means reordered columns; offered is symmetric int4 in groups of neighbouring "
                       "columns. Use a "
                       "checkpoint of that kind:\n    {}",
                       unsupported.size(), fmt::join(collapse_names(unsupported, kMaxNameLines), "\n    "))});
    }
    if (!strays.empty()) {
      survey_.problems.push_back(
          {"stray", strays.size(), strays.front(),
           fmt::format("{} tensors have no place in the model that config.json describes. They could change what the "
                       "model computes, "
                       "so they are not skipped; remove them, or correct config.json:\n    {}",
                       strays.size(), fmt::join(collapse_names(strays, kMaxNameLines), "\n    "))});
    }
  }

  const ModelConfig& config_;
  CheckpointSurvey& survey_;
  std::unordered_set<std::string_view> planned_;  // points into survey_.plan
  std::vector<std::string> missing_;
  FaultGroups types_;
  FaultGroups shapes_;
};

}  // namespace

void compare_with_plan(const ModelConfig& config, const std::function<bool(std::string_view name)>& is_excused,
                       CheckpointSurvey& survey) {
  survey.plan = make_stored_plan(config, survey);
  PlanComparison(config, survey).compare(is_excused);
}

}  // namespace gimbal
