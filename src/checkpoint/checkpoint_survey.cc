#include "checkpoint/checkpoint_survey.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "checkpoint/plan_comparison.h"
#include "checkpoint/tensor_name.h"
#include "checkpoint/weight_index.h"

namespace gimbal {
namespace {

constexpr size_t kMaxFaultyShards = 6;  // told one by one; a folder of Git LFS pointers has dozens
constexpr size_t kMaxNameLines = 5;

class Surveyor {
 public:
  Surveyor(const std::filesystem::path& model_dir, const ModelConfig& config)
      : model_dir_(model_dir), config_(config) {}

  CheckpointSurvey run() {
    auto index = read_weight_index(model_dir_);
    if (!index) {
      add_problem("index", 1, "", index.error().message);
      return std::move(survey_);
    }
    index_ = std::move(*index);
    survey_.notes = index_.notes;
    read_headers();
    report_missing_shards();
    locate_tensors();
    report_duplicates();
    compare_with_plan(
        config_, [this](std::string_view name) { return is_excused(name); }, survey_);
    if (index_.has_index_file) compare_with_index();
    return std::move(survey_);
  }

 private:
  void add_problem(std::string kind, uint64_t count, std::string example, std::string message) {
    survey_.problems.push_back({std::move(kind), count, std::move(example), std::move(message)});
  }

  void read_headers() {
    for (const std::string& file : index_.shards) {
      std::error_code code;
      const uint64_t file_bytes = std::filesystem::file_size(model_dir_ / file, code);
      auto entries = read_safetensors_header(model_dir_ / file);
      if (!entries) {
        unreadable_.insert(file);
        if (unreadable_.size() <= kMaxFaultyShards) add_problem("file", 1, file, entries.error().message);
        continue;
      }
      survey_.num_tensors += entries->size();
      survey_.total_bytes += code ? 0 : file_bytes;
      survey_.shards.push_back({file, code ? 0 : file_bytes, std::move(*entries)});
    }
    if (unreadable_.size() > kMaxFaultyShards) {
      const uint64_t count = unreadable_.size() - kMaxFaultyShards;
      add_problem("file", count, *unreadable_.rbegin(), fmt::format("{} more shards cannot be used either.", count));
    }
  }

  // Canonical names of the tensors that the index places in missing shards.
  std::vector<std::string> tensors_of_missing_shards() const {
    std::vector<std::string> names;
    for (const auto& [name, file] : index_.shard_of) {
      if (std::binary_search(index_.missing_shards.begin(), index_.missing_shards.end(), file)) {
        names.push_back(canonical_tensor_name(name));
      }
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  // Where tensors really are, files that the index does not name included.
  std::unordered_map<std::string, std::string> find_in_all_files() const {
    std::unordered_map<std::string, std::string> files;
    for (const SurveyedShard& shard : survey_.shards) {
      for (const SafetensorsEntry& entry : shard.entries) files.emplace(canonical_tensor_name(entry.name), shard.file);
    }
    for (const std::string& file : index_.unused_shards) {
      const auto entries = read_safetensors_header(model_dir_ / file);
      if (!entries) continue;
      for (const SafetensorsEntry& entry : *entries) files.emplace(canonical_tensor_name(entry.name), file);
    }
    return files;
  }

  std::string describe_split(const std::string& missing) const {
    const int64_t promised = announced_shard_count(missing);
    std::set<int64_t> found;
    for (const auto* list : {&index_.shards, &index_.unused_shards}) {
      for (const std::string& file : *list) {
        if (announced_shard_count(file) > 0) found.insert(announced_shard_count(file));
      }
    }
    if (promised == 0 || found.empty() || found.contains(promised)) return "";
    return fmt::format(" The name belongs to a split into {} shards, the files in the folder to one into {}.", promised,
                       fmt::join(found, " or "));
  }

  void report_missing_shards() {
    if (index_.missing_shards.empty()) return;
    const std::vector<std::string> names = tensors_of_missing_shards();
    const auto files = find_in_all_files();
    std::set<std::string> holders;
    const auto num_present = std::count_if(names.begin(), names.end(), [&](const std::string& name) {
      const auto it = files.find(name);
      if (it != files.end()) holders.insert(it->second);
      return it != files.end();
    });
    const size_t num_named = std::min<size_t>(index_.missing_shards.size(), 4);
    const std::span<const std::string> named(index_.missing_shards.data(), num_named);
    std::string shards = fmt::format("{}", fmt::join(named, ", "));
    if (num_named < index_.missing_shards.size()) {
      shards += fmt::format(" and {} more", index_.missing_shards.size() - num_named);
    }
    std::string advice;
    if (num_present == static_cast<int64_t>(names.size())) {
      advice = fmt::format(
          "All these tensors are present in the files that do exist ({}), so the index does not belong to these "
          "shards: download the index that came with them.",
          fmt::join(holders, ", "));
    } else if (num_present == 0) {
      advice = "None of these tensors is in the files that do exist: download the missing shards.";
    } else {
      advice = fmt::format(
          "{} of these tensors are in the files that do exist ({}), {} are in none: download index and shards of "
          "one and the same split.",
          num_present, fmt::join(holders, ", "), static_cast<int64_t>(names.size()) - num_present);
    }
    add_problem("index", index_.missing_shards.size(), index_.missing_shards.front(),
                fmt::format("the index {} names {}, which the folder does not hold, for {} tensors ({}).{} {}",
                            index_path(), shards, names.size(), fmt::join(collapse_names(names, 3), "; "),
                            describe_split(index_.missing_shards.front()), advice));
  }

  void locate_tensors() {
    survey_.locations.reserve(survey_.num_tensors);
    for (uint32_t shard = 0; shard < survey_.shards.size(); ++shard) {
      const auto& entries = survey_.shards[shard].entries;
      for (uint32_t entry = 0; entry < entries.size(); ++entry) {
        const auto [it, is_new] = survey_.locations.try_emplace(canonical_tensor_name(entries[entry].name),
                                                                CheckpointSurvey::Location{shard, entry});
        if (is_new) continue;
        duplicates_.push_back({it->second, {shard, entry}});
        duplicate_names_.insert(it->first);
      }
    }
  }

  const std::string& file_of(CheckpointSurvey::Location location) const { return survey_.shards[location.shard].file; }
  const std::string& name_at(CheckpointSurvey::Location location) const {
    return survey_.shards[location.shard].entries[location.entry].name;
  }

  void report_duplicates() {
    if (duplicates_.empty()) return;
    const auto& [first, second] = duplicates_.front();
    std::string choice = fmt::format("no {} says which counts", kIndexFileName);
    if (index_.has_index_file) {
      const auto it = index_.shard_of.find(name_at(second));
      choice = it == index_.shard_of.end() ? "the index names neither" : fmt::format("the index names {}", it->second);
    }
    const bool is_alias = name_at(first) != name_at(second);
    const std::string alias = is_alias ? fmt::format(" (as {})", name_at(second)) : "";
    std::string more;
    if (duplicates_.size() > 1) more = fmt::format(" {} more tensors are stored twice.", duplicates_.size() - 1);
    add_problem(
        "duplicate", duplicates_.size(), name_at(second),
        fmt::format("tensor {} is stored twice, in {} and{} in {}; {}. Which copy is right cannot be known: remove the "
                    "other from its shard, or download the shards again.{}",
                    name_at(first), file_of(first), alias, file_of(second), choice, more));
  }

  // Index entries that point at the wrong shard, and tensors that only one of index and shards knows. Comes after the
  // comparison with the plan, which has told of missing and stray tensors already.
  void compare_with_index() {
    std::unordered_set<std::string_view> planned;
    for (const PlannedWeight& weight : survey_.plan.weights) {
      for (const PlannedTensor& tensor : weight.tensors) planned.insert(tensor.name);
    }
    report_misplaced(planned);
    std::vector<std::string> absent;
    uint64_t num_missing = 0;
    for (const auto& [name, file] : index_.shard_of) {
      const std::string canonical = canonical_tensor_name(name);
      if (is_lost_file(file) || survey_.find(canonical) != nullptr) continue;
      if (planned.contains(canonical)) {
        ++num_missing;
      } else {
        absent.push_back(name);
      }
    }
    for (CheckpointProblem& problem : survey_.problems) {
      if (problem.kind == "missing" && num_missing > 0) {
        problem.message +=
            fmt::format("\n    The index names {} of them, but its shards do not hold them.", num_missing);
      }
    }
    if (absent.empty()) return;
    std::sort(absent.begin(), absent.end());
    add_problem("index", absent.size(), absent.front(),
                fmt::format("the index {} names {} tensors that no shard holds (the first should be in {}):\n    {}",
                            index_path(), absent.size(), index_.shard_of.at(absent.front()),
                            fmt::join(collapse_names(absent, kMaxNameLines), "\n    ")));
  }

  void report_misplaced(const std::unordered_set<std::string_view>& planned) {
    std::vector<std::string> unindexed;
    std::vector<std::string> misplaced;
    std::string example;
    for (const SurveyedShard& shard : survey_.shards) {
      for (const SafetensorsEntry& entry : shard.entries) {
        const std::string canonical = canonical_tensor_name(entry.name);
        const auto it = index_.shard_of.find(entry.name);
        if (it == index_.shard_of.end()) {
          if (planned.contains(canonical)) unindexed.push_back(entry.name);
        } else if (it->second != shard.file && !is_lost_file(it->second) && !duplicate_names_.contains(canonical)) {
          misplaced.push_back(entry.name);
          if (example.empty()) {
            example = fmt::format("{} is placed in {} and stored in {}", entry.name, it->second, shard.file);
          }
        }
      }
    }
    if (!misplaced.empty()) {
      add_problem(
          "index", misplaced.size(), misplaced.front(),
          fmt::format(
              "the index {} places {} tensors in shards that do not hold them: {}. Download the index that belongs to "
              "these shards.",
              index_path(), misplaced.size(), example));
    }
    if (!unindexed.empty()) {
      add_problem(
          "index", unindexed.size(), unindexed.front(),
          fmt::format(
              "the shards hold {} tensors that the index {} does not name; index and shards do not belong together:\n"
              "    {}",
              unindexed.size(), index_path(), fmt::join(collapse_names(unindexed, kMaxNameLines), "\n    ")));
    }
  }

  std::string index_path() const { return (model_dir_ / kIndexFileName).string(); }

  bool is_lost_file(const std::string& file) const {
    return unreadable_.contains(file) ||
           std::binary_search(index_.missing_shards.begin(), index_.missing_shards.end(), file);
  }

  // A planned tensor whose absence another problem already explains.
  bool is_excused(std::string_view name) {
    if (unreadable_.empty() && index_.missing_shards.empty()) return false;
    if (!index_.has_index_file) return true;
    if (excused_.empty()) {
      for (const auto& [stored, file] : index_.shard_of) {
        if (is_lost_file(file)) excused_.insert(canonical_tensor_name(stored));
      }
    }
    return excused_.contains(std::string(name));
  }

  const std::filesystem::path& model_dir_;
  const ModelConfig& config_;
  WeightIndex index_;
  CheckpointSurvey survey_;
  std::set<std::string> unreadable_;  // shards whose header was refused
  std::vector<std::pair<CheckpointSurvey::Location, CheckpointSurvey::Location>> duplicates_;
  std::unordered_set<std::string> duplicate_names_;  // canonical
  std::unordered_set<std::string> excused_;
};

}  // namespace

const SafetensorsEntry* CheckpointSurvey::find(std::string_view name) const {
  const auto it = locations.find(name);
  return it == locations.end() ? nullptr : &shards[it->second.shard].entries[it->second.entry];
}

CheckpointSurvey survey_checkpoint(const std::filesystem::path& model_dir, const ModelConfig& config) {
  return Surveyor(model_dir, config).run();
}

}  // namespace gimbal
